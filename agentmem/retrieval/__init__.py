"""
Recall: messages of earlier turns, found by words (BM25) and by meaning (embeddings).

Importing this loads nothing else: each name of ``__init__.pyi`` is imported when it is first used,
as an embedder needs torch and words alone do not.
"""

import lazy_loader

from agentmem.machine import cpu_threads  # noqa: F401 - before anything loads torch

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
