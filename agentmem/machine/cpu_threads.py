"""
How the CPU threads of a model wait for each other. To be imported before torch.

By default a thread that has nothing to do spins until the others are ready. Where two processes
share the cores, each spins away the time that the other needs: a token that takes 0.05 s then
takes 1.9 s (SmolLM2, two processes on two cores, 0.09 s with a short spin). In quiet moments the
fastest token took 0.047 s with either.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
