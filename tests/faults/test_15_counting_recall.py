"""What is recalled is counted by what is counted already."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.context.pack_hits import pack
from agentmem.context.recall import recall_message
from agentmem.context.render import Renderer
from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.protocols import Hit
from agentmem.testing import WordCounter
from tests.builders import say, stored, words
from tests.inference.kinds import kind_tokenizer


class Watched(WordCounter):
    """Keeps which messages it was asked to count."""

    def __init__(self):
        self.counted = []

    def count(self, message):
        self.counted.append(message.text)
        return super().count(message)


def hits(*texts, role="user"):
    found = stored(*(say(role, text) for text in texts))
    return [Hit(stored=one, score=-one.position) for one in found]


def test_a_line_is_counted_as_the_message_that_it_is():
    counter = Watched()
    found = hits(*(f"{words(12)} n{i}" for i in range(40)))
    pack(found, 2000, Renderer(counter))
    asked = set(counter.counted)
    assert {hit.stored.message.text for hit in found} <= asked
    # Beside those, the heading, one date, a few single words and the whole.
    assert len(asked) < 40 + 12


def test_a_full_page_counts_no_more_candidates():
    counter = Watched()
    found = hits(*(f"{words(12)} n{i}" for i in range(500)))
    kept = pack(found, 300, Renderer(counter))
    assert 15 < len(kept) < 25
    assert len(set(counter.counted)) < 40 + len(kept)


def test_a_long_candidate_is_passed_over_for_a_short_one_behind_it():
    found = hits(*(words(9, f"a{i}") for i in range(10)), words(90), "short enough")
    kept = pack(found, 190, Renderer(WordCounter()))
    assert found[-1] in kept
    assert found[-2] not in kept


@cache
def counter_of(kind):
    return ChatTokenizer(kind_tokenizer(kind))


SAID = st.tuples(
    st.sampled_from(["user", "assistant", "tool"]),
    st.text(alphabet="abc de\n.é猫?", min_size=1, max_size=60).filter(str.strip),
)


@pytest.mark.parametrize("kind", ["chatml", "qwen3", "gemma", "mistral"])
@settings(max_examples=25, deadline=None)
@given(said=st.lists(SAID, max_size=12), room=st.integers(0, 300))
def test_no_budget_is_exceeded_with_real_templates(kind, said, room):
    counter = counter_of(kind)
    messages = [
        say(role, text, **({"tool_call_id": "c"} if role == "tool" else {})) for role, text in said
    ]
    found = [Hit(stored=one, score=-one.position) for one in stored(*messages)]
    kept = pack(found, room, Renderer(counter))
    assert sum(counter.count(message) for message in recall_message(kept)) <= room
