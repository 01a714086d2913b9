"""The memory of a model's own cache."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSize:
    """Bytes of such a cache by text length."""

    fixed: int = 0
    """Bytes at any length, such as the state of a recurrent layer."""

    per_token: int = 0
    """Bytes of keys and values; a window is counted in full, since the next token trims it."""

    def num_bytes(self, length: int) -> int:
        """Return the maximum bytes for a text of *length* tokens."""
        return self.fixed + self.per_token * length

    def longest(self, num_bytes: int) -> int | None:
        """Return the number of tokens that fit *num_bytes*; None for no limit."""
        if self.fixed > num_bytes:
            return 0
        return (num_bytes - self.fixed) // self.per_token if self.per_token else None


def measure(state: Any) -> OwnSize:
    """Measure a cache that holds a text."""
    fixed = per_token = 0
    for name, tensor in _tensors(state):
        size = tensor.numel() * tensor.element_size()
        if name is None:
            fixed += size
        elif tensor.shape[-2]:
            per_token += -(-size // tensor.shape[-2])
    return OwnSize(fixed=fixed, per_token=per_token)


def num_bytes(state: Any) -> int:
    """Return the bytes of a cache, including the storage of views."""
    storages = {}
    for _, tensor in _tensors(state):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _tensors(state: Any) -> Iterator[tuple[str | None, Tensor]]:
    """Yield each tensor of *state*, with the name of the ones that grow with the text."""
    seen: set[int] = set()
    left: list[tuple[str | None, Any]] = [(None, state)]
    while left:
        name, one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            yield name, one
        elif isinstance(one, Mapping):
            left += [(None, value) for value in one.values()]
        elif isinstance(one, list | tuple):
            left += [(None, value) for value in one]
        elif type(one).__module__.startswith("transformers.") and not hasattr(one, "to_dict"):
            left += [
                (key if key in {"keys", "values"} else None, value)
                for key, value in vars(one).items()
            ]
