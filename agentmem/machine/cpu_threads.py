"""
OpenMP wait policy of a model's CPU threads. Import this before torch.

By default an idle thread busy-waits for the others. Where two processes share the cores, each
burns the time that the other needs: a token of 0.05 s then takes 1.9 s (SmolLM2, two processes on
two cores; 0.09 s with a short spin). On an idle machine the fastest token took 0.047 s with either.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
