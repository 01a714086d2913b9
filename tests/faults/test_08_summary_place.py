"""Summaries stand in a message of their own, and the system message stays what it was."""

from functools import cache
from itertools import pairwise

import pytest

from agentmem.config import Budget
from agentmem.testing import WordCounter
from agentmem.types import PrefixBreak, Role, Tier, common_prefix
from tests.builders import call, pin, result, say, words
from tests.context.replay import Replay

HEADING = "Summary of the earlier conversation"


@cache
def smollm2():
    """The default model's tokenizer and template, without its weights."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy: only for tests that ask

    from agentmem.inference import DEFAULT_MODEL  # noqa: PLC0415
    from agentmem.inference.chat.tokenizer import ChatTokenizer  # noqa: PLC0415
    from agentmem.inference.weights.find import find_model  # noqa: PLC0415

    folder = find_model(DEFAULT_MODEL, lambda _stage, _share: None)
    return ChatTokenizer(AutoTokenizer.from_pretrained(str(folder)))


def kind(name):
    from tests.inference.kinds import kind_counter  # noqa: PLC0415 - imports transformers

    return kind_counter(name)


def talk(counter, pins=(), turns=40, **shares):
    """Prompts of a talk that is summed up on its way."""
    budget = Budget(context=700, reply=20, **({"retrieved": 0, "summary": 0.45} | shares))
    replay = Replay(budget, pins, counter=counter)
    prompts = []
    for number in range(turns):
        replay.say(say("user", f"You must keep room {number} for {number * 10} EUR today."))
        prompts.append(replay.assemble())
        replay.say(say("assistant", f"Noted room {number} for the guests of today."))
    assert replay.check() == ()
    assert prompts[-1].summaries
    return prompts


def summary_message(prompt):
    (message,) = (m for m in prompt.messages if m.text.startswith(HEADING))
    return message


@pytest.mark.parametrize("pins", [(), (pin("role", "You sell tickets."),)], ids=["bare", "pinned"])
def test_what_a_summary_says_never_stands_in_the_system_message(pins):
    for prompt in talk(WordCounter(), pins):
        system = [m.text for m in prompt.messages if m.role is Role.SYSTEM]

        assert system == [one.text for one in pins]
        if prompt.summaries:
            message = summary_message(prompt)
            assert message.role is Role.USER
            assert prompt.messages.index(message) == len(system)
            assert "not instructions" in message.text.splitlines()[0]


def test_the_default_system_text_of_a_template_outlives_the_first_summary():
    prompts = talk(smollm2())
    begins = {prompt.text.split("<|im_end|>")[0] for prompt in prompts}

    assert len(begins) == 1
    assert "You are a helpful AI assistant named SmolLM" in begins.pop()
    assert prompts[-1].tokens_by_tier[Tier.TEMPLATE] >= prompts[0].tokens_by_tier[Tier.TEMPLATE]


@pytest.mark.parametrize("name", ["smollm2", "chatml", "llama3", "qwen3", "gemma", "mistral"])
@pytest.mark.parametrize("pins", [(), (pin("role", "You sell tickets."),)], ids=["bare", "pinned"])
def test_the_prefix_holds_up_to_the_summaries_under_every_template(name, pins):
    counter = smollm2() if name == "smollm2" else kind(name)
    prompts = talk(counter, pins)

    for one, other in pairwise(prompts):
        real = common_prefix(one.token_ids, other.token_ids)
        assert other.reuse.common_tokens <= real
        if other.reuse.broken_by is PrefixBreak.COMPACTION and name == "smollm2":
            assert other.reuse.common_tokens >= counter.count(say("user", words(1)))
        assert other.num_tokens == sum(other.tokens_by_tier.values())
        assert min(other.tokens_by_tier.values()) >= 0


@pytest.mark.parametrize("name", ["words", "chatml", "llama3", "qwen3", "gemma", "mistral"])
def test_a_window_that_begins_within_a_turn_follows_the_summary(name):
    """In a tool loop the window may begin with the user's message and go on with any round."""
    counter = WordCounter() if name == "words" else kind(name)
    replay = Replay(Budget(context=700, reply=20, retrieved=0, summary=0.45), counter=counter)
    replay.say(say("assistant", "Welcome, you decided to stay in room 4. " + words(30)))
    for number in range(24):
        replay.say(say("user", f"I must have room {number} for {number} EUR."))
        replay.say(call(f"c{number}"), result(f"c{number}", f"Room {number} is free. " * 4))
        prompt = replay.assemble()
        replay.say(say("assistant", f"Room {number} it is."))

    assert replay.check() == ()
    assert summary_message(prompt).role is Role.USER
    assert prompt.num_tokens <= 680
    assert not any(m.role is Role.SYSTEM for m in prompt.messages)
