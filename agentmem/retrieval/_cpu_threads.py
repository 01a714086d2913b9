"""
How long a CPU thread of the embedder spins while it waits. To be imported before torch.

The same as for the models of `agentmem.inference`, and for the same reason: by default each thread
spins away the time that other processes on the same cores need.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
