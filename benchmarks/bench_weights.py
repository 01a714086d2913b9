"""
What `InferenceConfig.weights` costs and gives: ``plain``, ``auto``, ``int8`` and ``int4``.

Each form reads the same real text: a context in one pass, then a token at a time, as an answer is
generated, so that quantised weights are at work. For each step it is measured how far the
distribution of the next token is from that of ``auto`` (Kullback-Leibler divergence, in nats), how
often the likeliest token is the same, the perplexity of what follows in the text, and the time. A
pass with the same steps in float32 tells what the dtype alone makes of it.

Good: a divergence of int8 below that of the dtype; of int4 under 0.1, with a step in less time.
"""

import argparse
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from engines import WEIGHTS
from report import print_json
from torch import Tensor
from workloads import Words

from agentmem.config import InferenceConfig
from agentmem.inference import LocalModel

CONTEXT = 512


@dataclass(frozen=True, slots=True)
class Steps:
    """What one form said: log-probabilities of each step (steps, vocab), and seconds."""

    logprobs: Tensor
    seconds: list[float]


def main() -> None:
    """Measure, print a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="64 steps in place of 512")
    parser.add_argument("--data", type=Path, help="a JSON file of conversations, for real text")
    options = parser.parse_args()
    num_steps = 64 if options.quick else 512
    with LocalModel.load() as model:
        words, dtype, device = Words(model, options.data), model.dtype, model.device
        text = words.prompt(CONTEXT + num_steps + 1, nonce="What is read.")
    read = {form: read_along(InferenceConfig(weights=form, dtype=dtype), text) for form in WEIGHTS}
    read["float32"] = read_along(InferenceConfig(dtype="float32"), text)
    figures = {form: compare(steps, read["auto"], text) for form, steps in read.items()}
    print(f"{'':>8} {'step ms':>8} {'KL':>9} {'same':>6} {'perplexity':>10}")
    for form, row in figures.items():
        print(
            f"{form:>8} {row['step_ms']:>8.1f} {row['kl']:>9.5f} {row['same']:>6.3f} "
            f"{row['perplexity']:>10.2f}"
        )
    print_json(
        {
            "benchmark": "weights",
            "forms": figures,
            "steps": num_steps,
            "context": CONTEXT,
            "text": words.source,
            "dtype": dtype,
            "device": device,
        }
    )


def read_along(config: InferenceConfig, text: tuple[int, ...]) -> Steps:
    """Let a model of that form read the context, then the rest a token at a time."""
    with LocalModel.load(config=config) as loaded:
        model = loaded._running()._model  # noqa: SLF001 - logits are no part of the interface
        cache = model.new_cache()
        rows = [model.forward([text[:CONTEXT]], cache)[0]]
        seconds = []
        for token_id in text[CONTEXT:-2]:
            started = time.perf_counter()
            rows.append(model.forward([[token_id]], cache)[0])
            seconds.append(time.perf_counter() - started)
    return Steps(torch.log_softmax(torch.stack(rows), -1), seconds)


def compare(steps: Steps, usual: Steps, text: tuple[int, ...]) -> dict[str, float]:
    """Give the figures of one form; *usual* is what it is compared with."""
    found, wanted = steps.logprobs, usual.logprobs
    following = torch.tensor(text[CONTEXT : CONTEXT + len(found)])
    told = found.gather(1, following[:, None])
    return {
        "step_ms": round(1000 * statistics.median(steps.seconds), 2),
        "kl": round(float((wanted.exp() * (wanted - found)).sum(-1).mean()), 6),
        "same": round(float((found.argmax(-1) == wanted.argmax(-1)).float().mean()), 4),
        "perplexity": round(math.exp(-float(told.mean())), 3),
    }


if __name__ == "__main__":
    main()
