"""Waiting before another attempt, for a random time: concurrent writers then collide less."""

import random
import time


def back_off(attempt: int, *, base_s: float, max_s: float) -> None:
    """Sleep for a random time of up to *base_s* times 2 to the power of *attempt*, and *max_s*."""
    longest_s = min(max_s, base_s * 2.0 ** min(attempt, 64))
    time.sleep(random.uniform(0, longest_s))  # noqa: S311 - jitter, no secret
