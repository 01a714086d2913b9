"""From a GGUF file to a folder of bfloat16 safetensors, config and tokenizer."""

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from agentmem.errors import ModelLoadError
from agentmem.inference.quiet import quiet_libraries

OnProgress = Callable[[str, float], None]
"""Told what is being done and how much of the whole load is behind, from 0 to 1."""

_MAGIC = b"GGUF"


def convert(gguf: Path, folder: Path, on_progress: OnProgress) -> None:
    """
    De-quantise *gguf* and write it to *folder*, which exists.

    Half a minute for 135 million weights; *on_progress* is told three times.

    Raises:
        ModelLoadError: the file is damaged, or of an architecture that cannot be read.
    """
    with gguf.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ModelLoadError(f"{gguf} is not a GGUF file: it does not begin with GGUF")
    try:
        with quiet_libraries():
            on_progress("reading the tokenizer", 0.1)
            tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
            on_progress("converting the weights", 0.2)
            model = AutoModelForCausalLM.from_pretrained(
                str(gguf.parent),
                gguf_file=gguf.name,
                dtype=torch.bfloat16,
                quantization_config=GgufConfig(dequantize=True),
            )
            on_progress("writing the weights", 0.45)
            if hasattr(model.config, "quantization_config"):
                # The weights are dense now; with this entry the library would not save them.
                del model.config.quantization_config
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except Exception as error:  # a damaged file makes its readers raise anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelLoadError(f"{gguf} cannot be read as a model: {lines[0]}") from error
