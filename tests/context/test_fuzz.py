"""A small run of the fuzz; `benchmarks/fuzz_context.py` plays ten thousand sessions."""

from collections import Counter

import pytest
from fuzz_checks import FAULTS
from fuzz_context import run_session
from fuzz_memory import run_memory_session

from agentmem.testing import WordCounter

pytestmark = pytest.mark.slow


def zeros(total):
    assert {fault: total[fault] for fault in FAULTS} == dict.fromkeys(FAULTS, 0)


def test_random_sessions_break_no_invariant():
    total = Counter()
    groups = set()
    for seed in range(60):
        group, faults = run_session(seed, WordCounter())
        groups.add(group)
        total.update(faults)

    zeros(total)
    assert groups == {"fits", "loop", "pins"}
    assert total["prompts"] > 300
    assert total["errors"] > 50
    assert total["with_summaries"] > 20
    assert total["with_recalled"] > 20


def test_random_sessions_of_a_memory_break_no_invariant():
    total = Counter()
    for seed in range(24):
        _, faults = run_memory_session(seed)
        total.update(faults)

    zeros(total)
    assert total["prompts"] > 200
    assert total["with_summaries"] > 20
    assert total["with_recalled"] > 5
