"""Where a model runs. Importing this loads torch."""

from functools import cache

import torch

from agentmem.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """
    Give the device that *name* means here.

    Raises:
        ConfigError: there is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"there is no device {name!r}: use auto, cpu, cuda or cuda:1") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"no device {name!r}: torch sees {torch.cuda.device_count()} CUDA devices; "
            "use auto or cpu"
        )
    return device


@cache
def cpu_has_fast_bf16() -> bool:
    """Ask for AMX or AVX512-BF16; without them bfloat16 is slower than float32."""
    probes = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, probe, bool)() for probe in probes)
