from dataclasses import replace

from agentmem.config import Budget
from agentmem.context.prompt_messages import show_clipped
from agentmem.context.reuse import PreviousPrompt, find_reuse
from agentmem.types import PrefixBreak, Tier
from tests.builders import pin, say, stored, words
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


def test_a_message_that_is_clipped_further_breaks_the_prefix_there():
    (long,) = stored(say("user", words(90)))
    layout = [show_clipped(long, kept).span(Tier.CURRENT) for kept in (40, 20)]
    seen = []

    def shared(num_shown, *, is_whole=False):
        seen.append((num_shown, is_whole))
        return 0

    for window, now in zip((40, 20), layout, strict=True):
        find_reuse(
            PreviousPrompt(layout=(layout[0],), pins=()),
            pins=(),
            layout=(now,),
            window=(show_clipped(long, window),),
            shared=shared,
        )

    assert seen == [(1, True), (0, False)]
