"""Moments for which a time zone has no date are shown as they are."""

from datetime import UTC, datetime

import pytest

from agentmem import Budget, Memory
from agentmem.retrieval import HybridRetriever
from agentmem.testing import ScriptedModel

MOMENTS = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Kiritimati", "Europe/Berlin"])
def test_the_first_and_the_last_hour_can_be_assembled_recalled_and_summed_up(moment, zone):
    memory = Memory.open(
        "sqlite://",
        model=ScriptedModel(),
        retriever=HybridRetriever(),
        timezone=zone,
        budget=Budget(context=120, reply=20),
    )
    with memory:
        session = memory.session("s")
        session.append("user", "The key of the vault is 17.", created_at=moment)
        for number in range(12):
            session.append("user", f"Fact {number} is about trains and stations.")
            session.append("assistant", f"Noted fact {number}.")
            session.assemble()

        prompt = session.assemble(query="key of the vault")

        assert "vault" in prompt.text
        assert session.check() == ()
