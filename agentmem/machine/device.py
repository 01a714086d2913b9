"""The device of a model. Importing this loads torch."""

import contextlib
import ctypes
from functools import cache

import torch

from agentmem.errors import ConfigError
from agentmem.machine.forks import call_in_child

_KINDS = {"cpu", "cuda", "mps"}


def choose_device(name: str) -> torch.device:
    """
    Return the torch device *name*; ``auto`` is CUDA where available.

    Raises:
        ConfigError: the device does not exist.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"there is no device {name!r}: use auto, cpu, cuda or cuda:1") from error
    if device.type not in _KINDS or (
        device.type == "mps" and not torch.backends.mps.is_available()
    ):
        raise ConfigError(f"no model runs here on {name!r}: use auto, cpu, cuda or cuda:1")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"no device {name!r}: torch sees {torch.cuda.device_count()} CUDA devices; "
            "use auto or cpu"
        )
    return device


def give_back(device: torch.device) -> None:
    """Return freed memory from the allocator to *device*, or to the operating system."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError, TypeError):
        # glibc only; other C libraries have no such call, and Windows none to name by None.
        ctypes.CDLL(None).malloc_trim(0)


@cache
def cpu_has_fast_bf16() -> bool:
    """Return whether there is AMX or AVX512-BF16; else bfloat16 is slower than float32."""
    probes = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, probe, bool)() for probe in probes)


@cache
def compute_in_one_thread_in_forks() -> None:
    """
    Limit a fork of this process, which has begun to compute, to one thread.

    The worker threads of torch do not survive a fork, and torch would wait for them forever.
    """
    call_in_child(lambda: torch.set_num_threads(1))
