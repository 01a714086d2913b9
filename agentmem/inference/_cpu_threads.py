"""
How the CPU threads of one model wait for each other. To be imported before torch.

By default a thread that has nothing to do spins until the others are ready. Where two processes
share the cores, each spins away the time that the other needs: a token that takes 0.05 s then
takes 1.9 s (two processes on two cores). A short spin costs nothing measurable when alone.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
