"""What is left after a process was killed at any moment: nothing wrong, and nothing lost."""

import json
import os

import pytest

from tests.store.processes import finish, start

KILLS = int(os.environ.get("AGENTMEM_KILLS", "5"))
RUN = "import sys; from tests.store.vectors.kills import main; main(*sys.argv[1:])"


@pytest.mark.slow
def test_kills_lose_nothing_and_leave_nothing_wrong(shared_url):
    """``AGENTMEM_KILLS=50`` for the long run."""
    figures = json.loads(finish(start(RUN, shared_url, KILLS), timeout=900))

    assert figures["kills"] == KILLS
    assert (figures["lost"], figures["wrong_hits"], figures["failed_starts"]) == (0, 0, 0)
    assert figures["messages"] >= KILLS
