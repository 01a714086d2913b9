"""
What one decode step costs against transformers' own cache: 1, 4 and 8 rows at a context of 1,024.

Both choose greedily, and each has the weights of one file in its own form; the stock rows are one
row repeated, which takes them as long. Ours is a whole step of the engine, with the choice of
tokens and their spelling; theirs is the forward pass over a `DynamicCache` and an argmax. They take
turns of a few steps, so that a slow minute hits both; figures are medians. ``ratio_shared_b8`` is
for 8 rows whose first 960 tokens are one prefix, against the same stock batch.

A good ratio is 1.10 or less.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from engines import WEIGHTS, loaded
from report import print_json
from transformers import DynamicCache
from workloads import Words

from agentmem import Sampling
from agentmem.inference import LocalModel
from agentmem.inference.engine.request_handle import RequestHandle
from agentmem.protocols import GenerationRequest

CONTEXT = 1024
SHARED = 960
TARGET = 1.10
_TURN = 4
"""Steps that each makes before the other has its turn."""


def main() -> None:
    """Measure, print a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="12 steps of each, not 80")
    parser.add_argument("--weights", default="auto", choices=WEIGHTS, help="the form of ours")
    parser.add_argument("--data", type=Path, help="a JSON file of conversations, for real text")
    options = parser.parse_args()
    num_steps = 12 if options.quick else 80
    figures: dict[str, Any] = {}
    with loaded(options.weights) as (model, module):
        words = Words(model, options.data)
        print(f"{'rows':>10} {'ours ms':>9} {'stock ms':>9} {'ratio':>7}")
        for rows in (1, 4, 8):
            prompts = [words.prompt(CONTEXT, nonce=f"Row {n}.", first=31 * n) for n in range(rows)]
            figures |= measure(model, module, prompts, num_steps, name=f"b{rows}")
        prefix = words.prompt(SHARED, nonce="One prefix for all.")
        prompts = [
            prefix + words.prompt(CONTEXT - SHARED, nonce=f"Row {n}.", first=31 * n)
            for n in range(8)
        ]
        figures |= measure(model, module, prompts, num_steps, name="shared_b8")
        print_json(
            {
                "benchmark": "decode",
                **figures,
                "context": CONTEXT,
                "steps": num_steps,
                "text": words.source,
                "dtype": model.dtype,
                "device": model.device,
            }
        )


def measure(
    model: LocalModel, module: Any, prompts: list[tuple[int, ...]], num_steps: int, *, name: str
) -> dict[str, float]:
    """Let both make steps in turn; give medians in ms, and ours over theirs."""
    pending, ours = our_step(model, prompts, num_steps)
    theirs = stock_step(module, prompts)
    seconds: dict[str, list[float]] = {"ours": [], "stock": []}
    for turn in range(num_steps // _TURN):
        for key, step in (("ours", ours), ("stock", theirs)):
            for number in range(_TURN):
                started = time.perf_counter()
                step()
                if turn > 0 or number > 0:  # the first finds cold caches
                    seconds[key].append(time.perf_counter() - started)
    for one in pending:
        one.cancel()
    own, stock = (1000 * statistics.median(seconds[key]) for key in ("ours", "stock"))
    print(f"{name:>10} {own:>9.1f} {stock:>9.1f} {own / stock:>7.3f}")
    return {
        f"ms_{name}": round(own, 2),
        f"stock_ms_{name}": round(stock, 2),
        f"ratio_{name}": round(own / stock, 4),
    }


def our_step(
    model: LocalModel, prompts: list[tuple[int, ...]], num_steps: int
) -> tuple[list[RequestHandle], Callable[[], None]]:
    """Bring requests to their first token; give them, and what makes the next of each."""
    engine = model._running()  # noqa: SLF001 - steps are no part of the interface
    sampling = Sampling(max_tokens=num_steps + 8, ignore_eos=True)
    pending = [
        model.submit(GenerationRequest(token_ids=prompt, sampling=sampling, cache_salt="bench"))
        for prompt in prompts
    ]
    # A step later all are in one batch.
    while any(one.num_tokens == 0 for one in pending) or pending[0].num_tokens < 2:
        engine.step()

    def step() -> None:
        assert all(not one.is_done for one in pending), "they still run"
        engine.step()

    return pending, step


@torch.inference_mode()
def stock_step(module: Any, prompts: list[tuple[int, ...]]) -> Callable[[], None]:
    """Prefill a stock cache and repeat it for all rows; give what makes their next tokens."""
    cache = DynamicCache(config=module.config)
    ids = torch.tensor([prompts[0]], device=module.device)
    logits = module(input_ids=ids, cache=cache, logits_to_keep=1).logits
    cache.batch_repeat_interleave(len(prompts))
    state = {"ids": logits[:, -1].argmax(-1, keepdim=True).repeat(len(prompts), 1)}

    @torch.inference_mode()
    def step() -> None:
        logits = module(input_ids=state["ids"], cache=cache, logits_to_keep=1).logits
        state["ids"] = logits[:, -1].argmax(-1, keepdim=True)

    return step


if __name__ == "__main__":
    main()
