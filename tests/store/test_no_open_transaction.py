"""While a model, an embedder or a policy works, its thread has no transaction open."""

import threading
from collections import Counter

import pytest
from sqlalchemy import event

from agentmem.config import Budget
from agentmem.context import Policy
from agentmem.memory import Memory
from agentmem.retrieval import HybridRetriever
from agentmem.store import Store
from agentmem.testing import HashingEmbedder, ScriptedModel
from agentmem.types import ToolCall


class Watch:
    """Knows for each thread whether a transaction has begun and not ended."""

    def __init__(self, engine):
        self.num_begun = 0
        self._open = Counter()
        event.listen(engine, "begin", self._begun)
        event.listen(engine, "commit", self._ended)
        event.listen(engine, "rollback", self._ended)

    @property
    def num_open(self):
        return self._open[threading.get_ident()]

    def _begun(self, _connection):
        self._open[threading.get_ident()] = 1
        self.num_begun += 1

    def _ended(self, _connection):
        # Not one less: a lock that did not come is rolled back without having begun.
        self._open[threading.get_ident()] = 0


class WatchingModel(ScriptedModel):
    """Looks at the pool before each piece of its answer."""

    def __init__(self, watch):
        super().__init__(["one two three"] * 20)
        self.watch = watch
        self.seen = []

    def stream(self, request):
        for chunk in super().stream(request):
            self.seen.append(self.watch.num_open)
            yield chunk


class WatchingEmbedder(HashingEmbedder):
    """Looks at the pool before each text, in whatever thread."""

    def __init__(self, watch):
        super().__init__()
        self.watch = watch
        self.seen = []

    def embed_passages(self, texts):
        self.seen.append((threading.current_thread(), self.watch.num_open))
        return super().embed_passages(texts)


class WatchingPolicy:
    """Is asked everything that a policy is asked, and looks at the pool each time."""

    author = "watch"

    def __init__(self, watch):
        self.watch = watch
        self.seen = {}

    def _look(self, what):
        self.seen.setdefault(what, set()).add(self.watch.num_open)

    def summarize(self, *_, **__):
        self._look("summarize")
        return "short"

    def discards(self, *_, **__):
        self._look("discards")
        return False

    def pin(self, *_, **__):
        self._look("pin")


@pytest.mark.parametrize("in_subtask", [False, True])
def test_no_transaction_is_open_while_a_model_answers(url, in_subtask):
    with Store.open(url) as store:
        watch = Watch(store.database.engine)
        model = WatchingModel(watch)
        memory = Memory(store, model=model, budget=Budget(context=150, reply=20))
        session = memory.session("trip", user="u42")
        session.pin("role", "You are a guide.")
        for turn in range(8):
            if in_subtask:
                with session.subtask(f"look {turn}") as task:
                    task.reply("What is there to see?")
                    task.promote("A castle.")
            else:
                session.reply("What is there to see in this town on a rainy day?")

        assert watch.num_begun > 20
        assert len(model.seen) >= 32
        assert set(model.seen) == {0}


def test_no_transaction_is_open_while_texts_are_embedded(url):
    with Store.open(url) as store:
        embedder = WatchingEmbedder(Watch(store.database.engine))
        memory = Memory(
            store,
            model=ScriptedModel(),
            retriever=HybridRetriever(embedder),
            budget=Budget(context=150, reply=20),
        )
        session = memory.session("trip", user="u42")
        for turn in range(30):
            session.append("user", f"What is there to see in town {turn} on a rainy day?")
        assert memory.wait_for_index(60)
        session.reply("What of town 3?")
        memory.close()

    threads = {thread for thread, _ in embedder.seen}
    assert len(threads) == 2  # the one in the background, and the one that asks
    assert {num_open for _, num_open in embedder.seen} == {0}


def test_no_transaction_is_open_while_a_policy_decides(url):
    with Store.open(url) as store:
        policy = WatchingPolicy(Watch(store.database.engine))
        memory = Memory(
            store,
            model=ScriptedModel(),
            budget=Budget(context=300, reply=20, summary=0.2),
            policy=Policy(summarizer=policy, discardable=policy, auto_pin=policy),
        )
        session = memory.session("trip", user="u42")
        for turn in range(12):
            session.append("user", f"What is there to see in town {turn} on a rainy day?")
            session.append("assistant", tool_calls=[ToolCall(id=f"c{turn}", name="look")])
            session.append("tool", "a castle, a church and a bridge " * 3, tool_call_id=f"c{turn}")
            session.assemble()
        memory.close()

    assert policy.seen == {"summarize": {0}, "discards": {0}, "pin": {0}}
