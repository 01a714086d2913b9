"""From a GGUF file to a folder of bfloat16 safetensors, config and tokenizer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from agentmem.errors import ModelLoadError
from agentmem.machine.quiet import quiet_libraries

OnProgress = Callable[[str, float], None]
"""Progress callback: (stage, fraction), the fraction of the whole load from 0 to 1."""

_MAGIC = b"GGUF"


def convert(gguf: Path, folder: Path, on_progress: OnProgress) -> None:
    """
    Dequantize *gguf* and write it to *folder*, which exists.

    Half a minute for 135 million weights; *on_progress* is called three times.

    Raises:
        ModelLoadError: the file is corrupt, or its architecture is unsupported.
    """
    with gguf.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ModelLoadError(f"{gguf} is not a GGUF file: it lacks the GGUF magic number")
    try:
        with quiet_libraries():
            on_progress("reading the tokenizer", 0.1)
            tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
            _restore_splitting(tokenizer, gguf)
            on_progress("converting the weights", 0.2)
            model = AutoModelForCausalLM.from_pretrained(
                str(gguf.parent),
                gguf_file=gguf.name,
                dtype=torch.bfloat16,
                quantization_config=GgufConfig(dequantize=True),
            )
            on_progress("writing the weights", 0.45)
            if hasattr(model.config, "quantization_config"):
                # The weights are dense now; with this entry transformers would not save them.
                del model.config.quantization_config
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except Exception as error:  # readers of a corrupt file may raise anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelLoadError(f"{gguf} cannot be read as a model: {lines[0]}") from error


def _restore_splitting(tokenizer: Any, gguf: Path) -> None:
    """
    Restore the pre-tokenizer of the model, where the GGUF reader omits it.

    SmolLM splits digits; without that, white space before a number gets other ids.
    """
    name = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    if name is not None and name.contents() == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                tokenizer.backend_tokenizer.pre_tokenizer,
            ]
        )
