"""How long is waited before another attempt."""

import pytest

from agentmem.machine import backoff


@pytest.mark.parametrize(
    ("attempt", "longest"), [(0, 0.002), (1, 0.004), (5, 0.064), (6, 0.1), (10**6, 0.1)]
)
def test_each_attempt_waits_longer_up_to_a_limit(monkeypatch, attempt, longest):
    asked = []
    monkeypatch.setattr(backoff.random, "uniform", lambda low, high: asked.append((low, high)) or 0)

    backoff.back_off(attempt, base_s=0.002, max_s=0.1)

    assert asked == [(0, pytest.approx(longest))]
