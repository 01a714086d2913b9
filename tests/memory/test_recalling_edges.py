"""What is recalled at the edges: meanwhile, across subtasks, after deletions."""

from dataclasses import replace

import pytest

from agentmem.config import Budget
from agentmem.context import Assembler
from agentmem.errors import ConfigError, IndexFileError
from agentmem.memory import Memory
from agentmem.memory.load_branch import load_view
from agentmem.protocols import Hit
from agentmem.retrieval import HybridRetriever
from agentmem.testing import HashingEmbedder, WordCounter
from agentmem.types import Origin
from tests.memory.retriever import WordRetriever


class SayingCounter(WordCounter):
    """Counts, and the first time lets something be said meanwhile."""

    meanwhile = None

    def count(self, message):
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()
        return super().count(message)


@pytest.mark.parametrize("query", [None, "apple"])
def test_what_is_said_while_a_prompt_is_made_is_not_recalled_into_it(url, query):
    counter = SayingCounter()
    budget = Budget(context=100, reply=10)
    with Memory.open(url, counter=counter, retriever=WordRetriever(), budget=budget) as memory:
        session = memory.session("trip")
        for number in range(40):
            session.append("user", f"apple {number}")
        counter.meanwhile = lambda: session.append("user", "apple apple later")

        prompt = session.assemble(query=query)

        assert prompt.head == 40
        assert prompt.recalled
        assert all(hit.position <= 40 for hit in prompt.recalled)
        assert session.check() == ()
        session.assemble()
        assert session.check() == ()


def test_hits_from_behind_the_view_are_left_for_the_next_prompt(session):
    budget = Budget(context=120, reply=20)
    session.append("user", "hello")
    late = session.append("user", "the code is 4711")
    view, _ = load_view(session._runtime, session.branch.id, budget, 1)
    hits = (Hit(stored=late, score=1.0),)

    prompt = Assembler(WordCounter(), budget).assemble(replace(view, hits=hits))

    assert prompt.recalled == ()


@pytest.mark.parametrize("wrong", ["all-MiniLM-L6-v2", WordRetriever, 7])
def test_what_is_no_retriever_is_refused(url, wrong):
    with pytest.raises(ConfigError, match="a retriever is an object"):
        Memory.open(url, retriever=wrong)


def test_index_files_go_when_something_is_deleted_without_a_retriever(url, tmp_path):
    with Memory.open(url, retriever=HybridRetriever(HashingEmbedder())) as memory:
        for key in ("a", "b"):
            for number in range(5):
                memory.session(key, user="u42").append("user", f"secret {number}")
        assert memory.wait_for_index(30)
        memory.find("a", user="u42").search("secret", everywhere=True)
        memory.find("b", user="u42").search("secret")
    folder = tmp_path / "agent.db-index"
    (folder / "mine.txt").write_text("of somebody else")
    assert len(list(folder.glob("*.vectors"))) == 2

    with Memory.open(url) as memory:
        memory.delete("b", user="u42")

    assert list(folder.glob("*.vectors")) == []
    assert (folder / "mine.txt").exists()
    with Memory.open(url, retriever=HybridRetriever(HashingEmbedder())) as memory:
        found = memory.find("a", user="u42").search("secret", everywhere=True)
        assert len(found) == 5


def test_a_deletion_says_what_is_left_where_index_files_cannot_be_removed(url, tmp_path):
    with Memory.open(url) as memory:
        session = memory.session("trip")
        session.append("user", "secret")
        (tmp_path / "agent.db-index").mkdir()
        (tmp_path / "agent.db-index" / ".lock").mkdir()

        with pytest.raises(IndexFileError, match="is deleted from the database"):
            session.delete_message(1)

        assert session.messages()[0].origin is Origin.DELETED


def test_other_sessions_find_nothing_of_subtasks():
    with Memory.open("sqlite://", retriever=HybridRetriever()) as memory:
        old = memory.session("old", user="u42")
        old.append("user", "the plan")
        for ending in ("end", "discard", None):
            task = old.subtask(f"task {ending}")
            task.append("user", f"scratch of the plan {ending}")
            if ending == "end":
                task.promote("result of the plan end")
            if ending is not None:
                getattr(task, ending)()
        new = memory.session("new", user="u42")

        found = [hit.stored.message.text for hit in new.search("plan", everywhere=True)]

        assert sorted(found) == ["result of the plan end", "the plan"]


def test_the_only_message_is_found_by_its_meaning():
    class Alike(HashingEmbedder):
        def embed_passages(self, texts):
            return super().embed_passages(["same"] * len(texts))

    with Memory.open("sqlite://", retriever=HybridRetriever(Alike())) as memory:
        session = memory.session("trip")
        session.append("user", "My dog is called Rex.")
        assert memory.wait_for_index(30)

        assert [hit.stored.position for hit in session.search("what pet do I own")] == [1]
