"""
The local model: tokenizer and chat template, KV block pool, prefix cache, engine.

Importing this loads torch and transformers.
"""

from agentmem.machine import cpu_threads  # noqa: F401, I001 - before torch is loaded
from agentmem.inference.engine.request_handle import RequestHandle
from agentmem.inference.kv_cache.usage import KVUsage
from agentmem.inference.engine.stats import ModelStats
from agentmem.inference.local_model import LocalModel
from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.inference.weights.find import DEFAULT_MODEL

__all__ = [
    "DEFAULT_MODEL",
    "ChatTokenizer",
    "KVUsage",
    "LocalModel",
    "ModelStats",
    "RequestHandle",
]
