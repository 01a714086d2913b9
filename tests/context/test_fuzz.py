"""A small run of the fuzz; `benchmarks/fuzz_context.py` plays ten thousand sessions."""

import sys
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from fuzz_context import FAULTS, run_session

from agentmem.testing import WordCounter


def test_random_sessions_break_no_invariant():
    total = Counter()
    groups = set()
    for seed in range(60):
        group, faults = run_session(seed, WordCounter())
        groups.add(group)
        total += faults

    assert {fault: total[fault] for fault in FAULTS} == dict.fromkeys(FAULTS, 0)
    assert groups == {"fits", "loop", "pins"}
    assert total["prompts"] > 300
    assert total["errors"] > 50
