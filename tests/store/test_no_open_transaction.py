"""While a model works, no transaction is open and no connection is taken out of the pool."""

import pytest
from sqlalchemy import event

from agentmem.config import Budget
from agentmem.memory import Memory
from agentmem.store import Store
from agentmem.testing import ScriptedModel


class Watch:
    """Counts transactions that were begun and not ended."""

    def __init__(self, engine):
        self.num_open = 0
        self.num_begun = 0
        event.listen(engine, "begin", self._begun)
        event.listen(engine, "commit", self._ended)
        event.listen(engine, "rollback", self._ended)

    def _begun(self, _connection):
        self.num_open += 1
        self.num_begun += 1

    def _ended(self, _connection):
        self.num_open -= 1


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
