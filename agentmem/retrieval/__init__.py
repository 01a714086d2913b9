"""
Hybrid search of earlier messages: by words (BM25) and by meaning (embeddings).

Lazy imports: each name of ``__init__.pyi`` is imported on first use, since an embedder needs torch
and lexical search does not.
"""

import lazy_loader

from agentmem.machine import cpu_threads  # noqa: F401 - before anything loads torch

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
