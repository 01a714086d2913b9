"""A broken-off answer that another one has replaced is found no more."""

import pytest

from agentmem import Budget, Memory
from agentmem.retrieval import HybridRetriever
from agentmem.testing import ScriptedModel

BUDGET = Budget(context=520, reply=20, summary=160)


@pytest.fixture
def session():
    model = ScriptedModel(["half answer ZEBRAHALF is a beast", "final answer is LION here"])
    memory = Memory.open("sqlite://", model=model, retriever=HybridRetriever(), budget=BUDGET)
    with memory:
        yield memory.session("s")


def break_off(session):
    with session.stream("what animal guards the vault?") as stream:
        for _ in range(3):
            next(stream)


def talk(session):
    for number in range(25):
        session.append("user", f"Tell me fact {number} about long trains and stations and rails.")
        session.append("assistant", f"Fact {number}: trains are long and rails are of steel.")


def test_a_replaced_half_is_neither_searched_nor_recalled(session):
    break_off(session)
    session.reply()
    talk(session)

    prompt = session.assemble(query="what animal guards the vault?")

    assert "ZEBRAHALF" not in prompt.text
    assert "LION" in prompt.text
    assert all("ZEBRAHALF" not in hit.stored.message.text for hit in session.search("ZEBRAHALF"))
    assert session.check() == ()


def test_a_half_that_nothing_has_replaced_is_found(session):
    break_off(session)
    talk(session)

    assert "ZEBRAHALF" in session.search("ZEBRAHALF")[0].stored.message.text
