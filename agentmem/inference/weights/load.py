"""Load a model from a folder: dtype and weights."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentmem.errors import ModelLoadError
from agentmem.inference.weights.optimize import optimize_for_cpu
from agentmem.machine.device import cpu_has_fast_bf16
from agentmem.machine.quiet import quiet_libraries


def load_module(
    folder: Path, device: torch.device, dtype: torch.dtype, *, weights: str
) -> tuple[Any, Any]:
    """
    Load model and tokenizer of a folder, the model on *device* and in evaluation mode.

    Args:
        folder: the folder of the files.
        device: the device of the model.
        dtype: the dtype of the computation.
        weights: the form of the weights; see `InferenceConfig`.

    Raises:
        ConfigError: the device does not support *weights*.
        ModelLoadError: the files are corrupt, incomplete, or of an unknown architecture.
    """
    module_class: Any = AutoModelForCausalLM
    try:
        with quiet_libraries():
            tokenizer = AutoTokenizer.from_pretrained(str(folder))
            module, info = module_class.from_pretrained(
                str(folder), dtype=dtype, output_loading_info=True, use_safetensors=True
            )
            module = module.to(device).eval()
    except Exception as error:  # readers of corrupt files may raise anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelLoadError(f"no model can be loaded from {folder}: {lines[0]}") from error
    # transformers would continue with random weights.
    if missing := sorted(info["missing_keys"]):
        raise ModelLoadError(
            f"the weights in {folder} lack {len(missing)} tensors, such as {missing[0]}"
        )
    optimize_for_cpu(module, weights=weights, device=device)
    return module, tokenizer


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype *name*; ``auto`` depends on *device*."""
    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if cpu_has_fast_bf16() else torch.float32
