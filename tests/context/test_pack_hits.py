"""Which hits are recalled: the best that fit."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.config import Budget
from agentmem.context import Assembler, BranchView, group_turns
from agentmem.context.pack_hits import pack
from agentmem.context.recall import recall_message
from agentmem.context.render import Renderer
from agentmem.protocols import Hit
from agentmem.testing import WordCounter
from agentmem.types import BranchId, Tier
from agentmem.types.passages import split_passages
from tests.builders import NOON, say, stored, words

FRAME = 2 + 9  # a message of the `WordCounter`, and the heading
HEADER = 4  # day, month, year, time
LINE = 1  # who speaks


class Watched(WordCounter):
    """Counts how many words it was given."""

    num_words = 0

    def count(self, message):
        self.num_words += len(message.text.split())
        return super().count(message)


class Merging(WordCounter):
    """Takes ten tokens more for a message of many lines than the lines take by themselves."""

    def count(self, message):
        return super().count(message) + 10 * (message.text.count("\n") > 3)


def hits(*sizes, days=0):
    """Other messages of so many words; each but the first so many days after the one before."""
    texts = (f"{words(size - 1)} n{i}".strip() for i, size in enumerate(sizes))
    messages = stored(*(say("user", text) for text in texts))
    return [
        Hit(stored=replace(one, created_at=NOON + timedelta(days=days * i)), score=-i)
        for i, one in enumerate(messages)
    ]


def packed(found, room, counter=None):
    kept = pack(found, room, Renderer(counter or WordCounter()))
    return [hit.stored.position for hit in kept]


def test_what_does_not_fit_is_passed_over():
    room = FRAME + HEADER + 2 * (LINE + 10)
    assert packed(hits(10, 50, 10, 10), room) == [1, 3]


def test_a_sitting_pays_for_one_header():
    assert packed(hits(10, 10), FRAME + HEADER + 2 * (LINE + 10)) == [1, 2]
    assert packed(hits(10, 10, days=1), FRAME + HEADER + 2 * (LINE + 10)) == [1]
    # The second header has no year.
    assert packed(hits(10, 10, days=1), FRAME + 2 * HEADER - 1 + 2 * (LINE + 10)) == [1, 2]


@pytest.mark.parametrize("room", [-5, 0, FRAME, FRAME + HEADER])
def test_no_room_is_no_hit(room):
    assert packed(hits(1), room) == []


@given(
    st.lists(st.integers(1, 40), max_size=25),
    st.integers(0, 300),
    st.sampled_from([0, 1, 400]),
    st.sampled_from([WordCounter, Merging]),
)
def test_never_over_the_budget(sizes, room, days, counter):
    renderer = Renderer(counter())
    kept = pack(hits(*sizes, days=days), room, renderer)
    assert sum(map(renderer.count, recall_message(kept))) <= max(room, 0)
    assert list(kept) == sorted(kept, key=lambda one: -one.score)


@given(st.lists(st.integers(1, 40), max_size=25), st.integers(0, 300), st.sampled_from([0, 1]))
def test_what_is_left_out_would_not_have_fit(sizes, room, days):
    found = hits(*sizes, days=days)
    kept = pack(found, room, Renderer(WordCounter()))
    for place, hit in enumerate(found):
        if hit not in kept:
            better = [one for one in found[:place] if one in kept]
            more = recall_message([*better, hit])
            assert sum(map(WordCounter().count, more)) > room


def test_each_line_is_counted_once():
    counter = Watched()
    found = hits(*[12] * 300)
    kept = pack(found, 2000, Renderer(counter))
    assert len(kept) > 100
    # Every line, the whole in the end, and little else.
    assert counter.num_words < 300 * 13 + 2 * 2000


def assembled(found, **budget):
    limits = {"context": 400, "reply": 20, "retrieved": 100} | budget
    asked = stored(say("user", "now"), start=1000)
    view = BranchView(
        branch_id=BranchId(1), head=1000, pins=(), turns=group_turns(asked), hits=tuple(found)
    )
    return Assembler(WordCounter(), Budget(**limits)).assemble(view)


def test_a_prompt_tells_score_and_ranks_of_what_it_recalls():
    first, second = hits(5, 5)
    found = [
        replace(first, score=0.125, ranks={"lexical": 2, "dense": 1}),
        replace(second, score=0.25, is_local=False, ranks={"lexical": 1}),
    ]
    prompt = assembled(found)
    assert [hit.score for hit in prompt.recalled] == [0.25, 0.125]
    assert [hit.position for hit in prompt.recalled] == [None, 1]
    assert "recalled message 1: score 0.125, dense rank 1, lexical rank 2" in prompt.explain()
    assert "recalled message 2 of another session: score 0.25, lexical rank 1" in prompt.explain()


def test_a_prompt_tells_nothing_of_what_it_does_not_recall():
    prompt = assembled(hits(5, 500))
    assert len(prompt.recalled) == 1
    assert assembled([]).recalled == ()


def test_a_message_that_was_found_twice_is_shown_once_by_its_best_score():
    (one,) = hits(5)
    prompt = assembled([replace(one, score=0.5), replace(one, score=0.75)])
    assert [hit.score for hit in prompt.recalled] == [0.75]
    assert prompt.tokens_by_tier[Tier.RETRIEVED] <= 100


def divided(*sizes):
    """The passages of long messages of so many words, as hits: of each message each second one."""
    found = []
    for hit in hits(*sizes):
        ranges = split_passages(hit.stored.message.text)
        found += [replace(hit, passages=(one,)) for one in ranges[::2]] if ranges[1:] else [hit]
    return found


@given(
    st.lists(st.sampled_from([5, 40, 300, 900]), max_size=6),
    st.integers(0, 900),
    st.sampled_from([WordCounter, Merging]),
    st.randoms(),
)
def test_passages_are_never_over_the_budget(sizes, room, counter, random):
    found = divided(*sizes)
    random.shuffle(found)
    renderer = Renderer(counter())

    kept = pack(found, room, renderer)

    assert sum(map(renderer.count, recall_message(kept))) <= max(room, 0)
    assert len({hit.stored.id for hit in kept}) == len(kept)
    offered = {(hit.stored.id, one) for hit in found for one in hit.passages}
    assert {(hit.stored.id, one) for hit in kept for one in hit.passages} <= offered


def test_the_passages_of_a_message_are_one_line_and_the_whole_of_them_is_the_message():
    (hit,) = hits(900)
    ranges = split_passages(hit.stored.message.text)
    each = [replace(hit, passages=(one,)) for one in reversed(ranges)]

    (some,) = pack([each[0], each[2]], 2000, Renderer(WordCounter()))
    (every,) = pack(each, 2000, Renderer(WordCounter()))

    assert some.passages == (ranges[-3], ranges[-1])
    assert every == hit
