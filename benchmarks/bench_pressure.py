"""
What it costs to have half of the KV memory that a load needs: 12 requests of three sessions.

Prompts have 600 to 1,200 tokens, of which the four of one session share the first 400, and answers
48 to 96; all are handed in at once. First the load runs with a pool that has room for everything;
the blocks in use at its peak are what it needs, and a second model gets half of them. They take
turns; figures are medians.

Good: ``failed`` is 0, ``wall_ratio`` (half over enough) is 2.0 or less, and ``differing`` (answers
that are not the same tokens) is 0 with ``--dtype float32``. In half precision rows of a batch are
rounded another way than one alone, so some differ there. ``prefill_ratio`` says how much was
computed again.
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import print_json
from workloads import Words

from agentmem import Sampling
from agentmem.config import InferenceConfig
from agentmem.errors import AgentMemError
from agentmem.inference import LocalModel
from agentmem.protocols import GenerationRequest

NUM_REQUESTS, NUM_SESSIONS = 12, 3
SHARED_TOKENS = 400
TARGET = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One run of all requests; an answer is None where the request failed."""

    wall_s: float
    answers: list[tuple[int, ...] | None]
    peak_blocks: int
    preemptions: int
    prefill_tokens: int


def main() -> None:
    """Measure, print a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run of each, not three")
    parser.add_argument("--dtype", default="auto", help="auto, float32 or bfloat16")
    parser.add_argument("--data", type=Path, help="a JSON file of conversations, for real text")
    options = parser.parse_args()
    with LocalModel.load(config=InferenceConfig(dtype=options.dtype)) as model:
        words = Words(model, options.data)
        run(model, requests(words, "Warm-up.")[:2])
        enough = [run(model, requests(words, "Run 0."))]
        num_blocks = enough[0].peak_blocks // 2
        with LocalModel.load(config=half_pool(model, options.dtype, num_blocks)) as small:
            half = [run(small, requests(words, "Run 0."))]
            for number in range(1, 1 if options.quick else 3):
                load = requests(words, f"Run {number}.")
                enough.append(run(model, load))
                half.append(run(small, load))
            usage = small.kv_usage()
            assert usage.in_use == 0, "whoever has ended holds no block"
        report(model, words, enough, half)


def requests(words: Words, nonce: str) -> list[GenerationRequest]:
    """Give the load; no two with another nonce share anything."""
    prefixes = [
        words.prompt(SHARED_TOKENS, nonce=f"{nonce} Session {number}.", first=150 * number)
        for number in range(NUM_SESSIONS)
    ]
    made = []
    for number in range(NUM_REQUESTS):
        own = 200 + 600 * (number * 5 % NUM_REQUESTS) // (NUM_REQUESTS - 1)
        said = words.prompt(own, nonce=f"Question {number}", first=450 + 40 * number)
        num_new = 48 + 48 * (number * 7 % NUM_REQUESTS) // (NUM_REQUESTS - 1)
        made.append(
            GenerationRequest(
                token_ids=prefixes[number % NUM_SESSIONS] + said,
                sampling=Sampling(max_tokens=num_new, ignore_eos=True),
                cache_salt="",
            )
        )
    return made


def half_pool(model: LocalModel, dtype: str, num_blocks: int) -> InferenceConfig:
    """Give the settings of a pool of that many blocks, and as much for the buffers of runs."""
    usage = model.kv_usage()
    # One block of the memory is the null block, which no account counts.
    block_bytes = usage.max_kv_bytes // (usage.total + 1)
    return InferenceConfig(dtype=dtype, kv_bytes=2 * block_bytes * (num_blocks + 1))


def run(model: LocalModel, load: list[GenerationRequest]) -> Load:
    """Hand in all of *load* and take steps until nothing is left."""
    engine = model._running()  # noqa: SLF001 - steps are no part of the interface
    before = model.stats()
    started = time.perf_counter()
    pending = [model.submit(request) for request in load]
    peak = 0
    while engine.step():
        peak = max(peak, model.kv_usage().in_use)
    answers: list[tuple[int, ...] | None] = []
    for one, request in zip(pending, load, strict=True):
        try:
            is_whole = one.result().usage.completion_tokens == request.sampling.max_tokens
        except AgentMemError:
            is_whole = False
        ids = one._output.sequence.token_ids  # noqa: SLF001 - a result leaves out what is no text
        answers.append(tuple(ids[len(request.token_ids) :]) if is_whole else None)
    wall_s = time.perf_counter() - started
    after = model.stats()
    return Load(
        wall_s=wall_s,
        answers=answers,
        peak_blocks=peak,
        preemptions=after.preemptions - before.preemptions,
        prefill_tokens=after.prefill_tokens - before.prefill_tokens,
    )


def report(model: LocalModel, words: Words, enough: list[Load], half: list[Load]) -> None:
    """Print the table and the JSON line."""
    figures: dict[str, dict[str, Any]] = {}
    print(f"{'':>8} {'wall s':>8} {'blocks':>7} {'preempted':>9} {'prefill':>8} {'failed':>6}")
    for name, runs in (("enough", enough), ("half", half)):
        row = {
            "wall_s": round(statistics.median(one.wall_s for one in runs), 3),
            "peak_blocks": max(one.peak_blocks for one in runs),
            "preemptions": sum(one.preemptions for one in runs),
            "prefill_tokens": round(statistics.median(one.prefill_tokens for one in runs)),
            "failed": sum(answer is None for one in runs for answer in one.answers),
        }
        figures[name] = row
        print(
            f"{name:>8} {row['wall_s']:>8.2f} {row['peak_blocks']:>7} {row['preemptions']:>9} "
            f"{row['prefill_tokens']:>8} {row['failed']:>6}"
        )
    pairs = [
        pair
        for one, other in zip(enough, half, strict=True)
        for pair in zip(one.answers, other.answers, strict=True)
    ]
    differing = sum(one != other for one, other in pairs)
    ratio = figures["half"]["wall_s"] / figures["enough"]["wall_s"]
    print(
        f"half / enough = {ratio:.3f} (good: {TARGET} or less); {differing} of {len(pairs)} differ"
    )
    print_json(
        {
            "benchmark": "pressure",
            "wall_ratio": round(ratio, 3),
            "failed": figures["half"]["failed"],
            "preemptions": figures["half"]["preemptions"],
            "differing": differing,
            "answers": len(pairs),
            "prefill_ratio": round(
                figures["half"]["prefill_tokens"] / figures["enough"]["prefill_tokens"], 3
            ),
            "pools": figures,
            "runs": len(half),
            "text": words.source,
            "dtype": model.dtype,
            "device": model.device,
        }
    )


if __name__ == "__main__":
    main()
