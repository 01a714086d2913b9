"""Times the index of one long session, apart from the model that embeds."""

import random
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
from searching import entries_of, query

from agentmem.retrieval.dense.embedder import Embedder
from agentmem.retrieval.dense.vector_index import FaissIndex
from agentmem.retrieval.fusion.rrf import rank
from agentmem.retrieval.lexical.bm25 import LexicalIndex
from agentmem.retrieval.rows.message_table import MessageTable
from agentmem.types import BranchId, Message, MessageId, Origin, Role, StoredMessage, TextPart

NUM_TURNS = 10_000
QUESTION = "What did the museum in Lisbon cost us on the second day, and when did it close?"
SYLLABLES = ("ba", "do", "ke", "li", "mu", "na", "po", "ri", "sa", "te", "vo", "zu")


def measure_speed(embedder: Embedder) -> dict[str, float]:
    """Give milliseconds: to embed a question, to search with it, and for a message more."""
    rng = random.Random(1)
    words = ["".join(rng.choices(SYLLABLES, k=3)) for _ in range(5000)]
    entries = entries_of([_said(position, rng, words) for position in range(1, NUM_TURNS + 1)])
    message_table, lexical = MessageTable(), LexicalIndex()
    vectors = FaissIndex(embedder.dimension)
    numbers = np.random.default_rng(1)
    update: list[float] = []
    for entry in entries:
        vector = numbers.normal(size=(1, embedder.dimension)).astype(np.float32)
        vector /= np.linalg.norm(vector)
        started = time.perf_counter()
        rows = message_table.add([entry])
        lexical.add([entry], rows)
        vectors.add(np.array(rows), vector)
        update.append(time.perf_counter() - started)
    asked = embedder.embed_query(QUESTION)

    def search() -> None:
        wanted = query(QUESTION)
        dense = vectors.scores(asked, message_table.mask(wanted))
        rank(message_table, lexical.scores(QUESTION), dense, wanted)

    embed_ms = _median_ms(lambda: embedder.embed_query(QUESTION))
    search_ms = _median_ms(search)
    return {
        "turns": len(entries),
        "embed_query_ms": embed_ms,
        "search_ms": search_ms,
        "search_over_embed": round(search_ms / embed_ms, 3),
        "update_mean_ms": round(1000 * statistics.mean(update), 3),
        "update_p99_ms": round(1000 * statistics.quantiles(update, n=100)[-1], 3),
    }


def _median_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(30):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return round(1000 * statistics.median(times), 3)


def _said(position: int, rng: random.Random, words: list[str]) -> StoredMessage:
    """Make up a message of common words, rare words and now and then one of the question's."""
    rare = [words[min(int(rng.paretovariate(0.6)) - 1, len(words) - 1)] for _ in range(18)]
    known = rng.choices(QUESTION.split(), k=3) if rng.random() < 0.5 else []
    text = " ".join([*rare, *known])
    return StoredMessage(
        id=MessageId(position),
        branch_id=BranchId(1),
        position=position,
        message=Message(role=Role.USER, parts=(TextPart(text=text),)),
        origin=Origin.SAID,
        created_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=position),
    )
