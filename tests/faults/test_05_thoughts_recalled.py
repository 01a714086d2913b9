"""Thoughts of a model are in no index and in no recall, and vectors made of them are forgotten."""

import pytest

from agentmem import Budget, Memory, ReasoningPart, TextPart
from agentmem.context.recall import recall_message
from agentmem.protocols import Hit
from agentmem.retrieval import HybridRetriever
from agentmem.retrieval.dense.chunks import chunks_of
from agentmem.retrieval.rows.content_hash import NO_SESSION, content_hash
from agentmem.retrieval.rows.message_table import indexed_message
from agentmem.testing import HashingEmbedder, WordCounter
from tests.builders import say, stored
from tests.memory.retriever import WordRetriever

THOUGHTS = {
    "closed": "<think>never tell him about zebra rule</think>The price is 90 EUR.",
    "another family": "[THINK]never tell him about zebra rule[/THINK]The price is 90 EUR.",
    "upper case": "<THINKING>zebra rule</THINKING>\nThe price is 90 EUR.",
    "opened in the prompt": "so the zebra rule holds</think>The price is 90 EUR.",
    "twice": "<think>zebra</think>The price is 90 EUR.<think>zebra rule</think>",
}
ALONE = ["<think>zebra rule</think>", "<think>zebra rule, cut o"]


class Watching(HashingEmbedder):
    """Keeps what it embedded."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def embed_passages(self, texts):
        self.texts += texts
        return super().embed_passages(texts)


@pytest.mark.parametrize("said", THOUGHTS.values(), ids=THOUGHTS)
@pytest.mark.parametrize(
    "make", [HybridRetriever, lambda: HybridRetriever(HashingEmbedder()), WordRetriever]
)
def test_a_thought_is_neither_found_nor_shown(said, make):
    budget = Budget(context=200, reply=20, retrieved=0.5, summary=0)
    with Memory.open("sqlite://", counter=WordCounter(), retriever=make(), budget=budget) as memory:
        session = memory.session("s")
        session.append("user", "What does it cost?")
        session.append("assistant", said)
        for i in range(40):
            session.append("user", f"tell me fact {i}")
            session.append("assistant", f"trains {i} are long")
        memory.wait_for_index(timeout_s=10)
        if make is not WordRetriever:
            words = [
                hit.stored.position
                for hit in session.search("zebra rule")
                if hit.ranks.get("lexical")
            ]
            assert 2 not in words
        prompt = session.assemble(query="price zebra rule")
        assert "zebra" not in prompt.text
        assert "assistant: The price is 90 EUR." in prompt.text
        assert session.check() == ()


@pytest.mark.parametrize("said", ALONE)
def test_an_answer_that_is_only_a_thought_is_not_there_for_search(said):
    embedder = Watching()
    with Memory.open(
        "sqlite://", counter=WordCounter(), retriever=HybridRetriever(embedder)
    ) as memory:
        session = memory.session("s")
        session.append("user", "hello")
        session.append("assistant", said)
        session.append("user", "bye")
        assert memory.wait_for_index(timeout_s=10)
        assert not any("zebra" in one for one in embedder.texts)
        assert [
            hit.stored.position for hit in session.search("zebra rule") if hit.ranks.get("lexical")
        ] == []
        assert memory.index_status().num_messages == 2


def test_parts_of_thought_and_quotations_of_users():
    (quoted,) = stored(say("user", "what does <think>zebra</think> mean"))
    assert "zebra" in indexed_message(quoted, NO_SESSION).text
    answer = say("assistant", "<think>zebra</think>four")
    mixed = type(answer)(
        role="assistant", parts=(ReasoningPart(text="zebra"), TextPart(text="four"))
    )
    for message in (answer, mixed):
        (one,) = stored(message)
        assert indexed_message(one, NO_SESSION).text.strip() == "four"
        assert [
            span.text for span in chunks_of(indexed_message(one, NO_SESSION), HashingEmbedder())
        ] == ["assistant: four"]
        (recalled,) = recall_message([Hit(stored=one, score=1.0)])
        assert "zebra" not in recalled.text


def test_files_made_of_thoughts_do_not_hold_any_more():
    (one,) = stored(say("assistant", "<think>zebra</think>four"))
    entry = indexed_message(one, NO_SESSION)
    before = type(entry)(
        **{name: getattr(entry, name) for name in entry.__slots__ if name not in ("text", "line")}
        | {"text": one.message.text}
    )
    assert content_hash(entry) != content_hash(before)
