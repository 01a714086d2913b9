"""The memory of a device that is available for KV blocks."""

from collections.abc import Callable

import torch

from agentmem.errors import ConfigError
from agentmem.machine.memory import available_memory, total_memory


def pool_bytes(kv_bytes: float, device: torch.device, run_chunk: Callable[[], object]) -> int:
    """
    Return the maximum bytes of the KV pool.

    Args:
        kv_bytes: bytes; a float is a share of the device's free memory, less the peak of a pass
            over one chunk.
        device: the device of the model.
        run_chunk: runs such a pass, which is measured where the device has memory statistics.

    Raises:
        ConfigError: it is more than the device has.
    """
    if isinstance(kv_bytes, int):
        if kv_bytes > (total := _total_bytes(device)):
            raise ConfigError(
                f"kv_bytes {kv_bytes} is more than the {total} bytes that {device} has: lower "
                "InferenceConfig.kv_bytes, or give a share from 0.0 to 1.0"
            )
        return kv_bytes
    return int(kv_bytes * max(free_bytes(device) - _peak_bytes(device, run_chunk), 0))


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of *device*; on the CPU, those available without swap."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return available_memory()


def _total_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return total_memory()


def _peak_bytes(device: torch.device, run_chunk: Callable[[], object]) -> int:
    """Measure the peak memory of a pass above its result; the CPU has no such counter."""
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run_chunk()
    peak = int(torch.cuda.max_memory_allocated(device)) - before
    torch.cuda.empty_cache()
    return peak
