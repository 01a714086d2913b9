from dataclasses import replace

from agentmem.config import Budget
from agentmem.types import PrefixBreak
from tests.builders import pin, say
from tests.context.replay import Replay


def replay(*pins):
    return Replay(Budget(context=101, reply=1), pins)


def test_the_first_prompt_has_nothing_in_common_with_another():
    talk = replay()
    talk.say(say("user", "hello"))

    reuse = talk.assemble().reuse

    assert (reuse.common_tokens, reuse.broken_by) == (0, PrefixBreak.FIRST)


def test_a_prompt_that_goes_on_breaks_nothing():
    """Role, word and end of the question, and the role that the answer begins with: 4 tokens."""
    talk = replay()
    talk.say(say("user", "hello"))
    talk.assemble()
    talk.say(say("assistant", "hi"), say("user", "bye"))

    reuse = talk.assemble().reuse

    assert (reuse.common_tokens, reuse.broken_by) == (4, None)


def test_a_changed_pin_is_named():
    talk = replay(pin("clock", "it is noon"), pin("role", "be kind"))
    talk.say(say("user", "hello"))
    talk.assemble()
    talk.pins = (replace(talk.pins[0], text="it is one", version=2), talk.pins[1])

    reuse = talk.assemble().reuse

    assert (reuse.common_tokens, reuse.broken_by) == (0, PrefixBreak.PINS)
    assert reuse.detail == "session/clock"
