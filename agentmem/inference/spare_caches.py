"""
Run buffers that a run has left behind, kept for the next one.

Memory that is new to a process costs more than what is copied into it: behind a prefix of 1,600
tokens it was a quarter of the time to the first token. What is kept is zeroed, so nothing of a
text stays, and no NaN.
"""

import torch

from agentmem.inference.paged_cache import PagedCache

MAX_SPARE_BYTES = 128 << 20
"""Kept at most; a model with larger buffers takes far longer to compute than to get them."""


class SpareCaches:
    """A few caches without rows, for models on the CPU; elsewhere the allocator keeps memory."""

    def __init__(self, device: torch.device) -> None:
        self._is_kept = device.type == "cpu"
        self._caches: list[PagedCache] = []

    @property
    def num_bytes(self) -> int:
        """Memory that they hold."""
        return sum(cache.num_bytes for cache in self._caches)

    def take(self, *, rows: int, slots: int) -> PagedCache | None:
        """Give a cache for so many rows, with room for so many slots, if there is one."""
        for cache in reversed(self._caches):
            if cache.num_rows == rows and slots <= cache.num_slots <= 4 * slots:
                self._caches.remove(cache)
                return cache
        return None

    def put(self, cache: PagedCache) -> None:
        """Keep *cache*, whose rows have left, and drop the oldest where it gets too much."""
        if not self._is_kept or cache.num_bytes > MAX_SPARE_BYTES:
            return
        cache.clear()
        self._caches.append(cache)
        while self.num_bytes > MAX_SPARE_BYTES:
            self._caches.pop(0)

    def release(self) -> None:
        """Give all memory back."""
        self._caches.clear()
