from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.config import Budget
from agentmem.errors import ContextOverflowError
from agentmem.testing import WordCounter
from agentmem.types import Span, Tier, TruncationReason, common_prefix
from tests.builders import call, pin, result, say, words
from tests.context.replay import Replay


def budget(prompt, **more):
    return Budget(
        context=prompt + 1, reply=1, **{"summary": 0, "retrieved": 0, "clip": False, **more}
    )


def test_a_prompt_is_pins_then_window_then_current_turn():
    replay = Replay(budget(100), [pin("role", "be kind"), pin("limit", "spend little")])
    replay.say(say("user", "one"), say("assistant", "two"), say("user", "three"))

    prompt = replay.assemble()

    assert [message.text for message in prompt.messages] == [
        "be kind\n\nspend little",
        "one",
        "two",
        "three",
    ]
    assert dict(prompt.tokens_by_tier) == {
        Tier.TEMPLATE: 1,
        Tier.PINNED: 6,
        Tier.RECENT: 6,
        Tier.CURRENT: 3,
    }


def test_what_does_not_fit_is_named_with_its_tokens_and_the_room():
    replay = Replay(budget(1 + 5 + 9))
    replay.say(say("user", words(8)), say("user", words(3)), say("user", words(3)))

    prompt = replay.assemble()

    assert prompt.layout == (
        Span(first=1, last=1, tier=None),
        Span(first=2, last=2, tier=Tier.RECENT),
        Span(first=3, last=3, tier=Tier.CURRENT),
    )
    (record,) = prompt.truncations
    assert (record.first, record.last, record.num_tokens, record.room) == (1, 1, 10, 9)
    assert (record.reason, record.tier, record.destination) == (
        TruncationReason.WINDOW,
        Tier.RECENT,
        "store",
    )


def test_what_an_earlier_prompt_named_is_not_named_again():
    replay = Replay(budget(10))
    replay.say(say("user", words(6)), say("user", "b"))
    replay.assemble()
    replay.say(say("user", "c"))

    assert replay.assemble().truncations == ()


def test_a_turn_stands_whole_or_not_at_all():
    replay = Replay(budget(14))
    replay.say(say("user", "a"), call("c1"), result("c1"), say("assistant", "d"))
    replay.say(say("user", "e"))

    prompt = replay.assemble()

    assert [message.text for message in prompt.messages] == ["e"]


def test_pins_and_current_turn_that_do_not_fit_raise_with_the_numbers_of_each_tier():
    replay = Replay(budget(10), [pin("role", words(4))])
    replay.say(say("user", words(6)))

    with pytest.raises(ContextOverflowError) as caught:
        replay.assemble()

    assert caught.value.tokens_by_tier == {"template": 1, "pinned": 6, "current": 8}
    assert "needs at least 15 tokens" in str(caught.value)


def test_the_prefix_breaks_once_per_slide_and_not_once_per_turn():
    """
    95 tokens hold four older turns of 20 and a question of 10. A slide leaves one of them, since
    half of 95 is 47: the first comes with the sixth question, then one every four.
    """
    replay = Replay(budget(100), [pin("role", "be kind")])
    prompts = []
    for number in range(60):
        replay.say(say("user", words(8, f"u{number}")))
        prompts.append(replay.assemble())
        replay.say(say("assistant", words(8, f"a{number}")))

    breaks = sum(
        common_prefix(one.token_ids[:-1], other.token_ids) < one.num_tokens - 1
        for one, other in pairwise(prompts)
    )

    assert breaks == len(range(5, 60, 4))
    assert max(prompt.num_tokens for prompt in prompts) <= 100


def test_a_branch_without_messages_is_its_pins():
    replay = Replay(budget(20), [pin("role", "be kind")])

    prompt = replay.assemble()

    assert dict(prompt.tokens_by_tier) == {Tier.TEMPLATE: 1, Tier.PINNED: 4}
    assert prompt.layout == ()


messages = st.one_of(
    st.builds(say, st.just("user"), st.integers(1, 12).map(words)),
    st.builds(say, st.just("assistant"), st.integers(1, 12).map(words)),
)


@given(
    said=st.lists(st.lists(messages, max_size=4), max_size=12),
    limit=st.integers(8, 120),
    low_water=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    pins=st.lists(st.integers(1, 6), max_size=3),
)
def test_every_prompt_fits_shows_each_pin_and_accounts_for_each_message(
    said, limit, low_water, pins
):
    chosen = [pin(f"p{index}", words(size, f"p{index}")) for index, size in enumerate(pins)]
    replay = Replay(budget(limit, low_water=low_water), chosen)
    for group in said:
        replay.say(*group)
        if not replay.messages:
            continue  # a memory makes no prompt of pins alone
        try:
            prompt = replay.assemble()
        except ContextOverflowError as error:
            needed = sum(error.tokens_by_tier.values())
            assert needed > limit
            continue
        assert prompt.num_tokens <= limit
        assert prompt.num_tokens == sum(prompt.tokens_by_tier.values())
        assert prompt.token_ids == WordCounter().render(prompt.messages).token_ids
        assert all(p.text in prompt.messages[0].text for p in chosen)
        assert replay.assemble().prompt_hash == prompt.prompt_hash
    assert replay.check() == ()


class ShortCounter(WordCounter):
    """Counts single messages too low, as for a template that adds something between two."""

    def count(self, message):
        return super().count(message) - 2


def test_a_count_that_is_too_low_never_leads_over_the_budget():
    """A slide to a low-water mark of 1.0 keeps all that seems to fit; the whole is counted."""
    plain = Budget(context=101, reply=1, retrieved=0, summary=0, low_water=1.0)
    replay = Replay(plain, counter=ShortCounter())
    for number in range(30):
        replay.say(say("user", words(3, f"u{number}")))
        assert replay.assemble().num_tokens <= 100

    assert replay.records != []
    assert replay.check() == ()
