"""Where a model runs. Importing this loads torch."""

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
