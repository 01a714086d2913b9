"""
What one session of 20 turns costs, one stream: about 40 tokens said and 32 answered in each turn.

Three engines have the same conversation in turn, each with its own answers, which are of one
length: ours, ``kept`` (transformers with a `DynamicCache` that is kept from turn to turn) and
``llama_cpp`` (the xllamacpp wheel on the same GGUF file, which is Q4_1, with one slot and its
prefix cache). Without the wheel, or with ``--peers kept``, llama.cpp is left out.

``ratios`` is their wall time over ours, all turns together: 1 or more is good. Nothing is batched
here, so that what counts is the linear kernel: llama.cpp multiplies by 4-bit weights, we by the
model's own. ``prefill_tokens`` is good where it is the same for all.
"""

import argparse
import statistics
from pathlib import Path

from bench_fanout import peers
from engines import WEIGHTS, Engine, Measured, agentmem, loaded
from library_engines import kept
from report import print_json
from workloads import Words

from agentmem.inference import LocalModel

PEERS = ("kept", "llama_cpp")
NUM_TURNS = 20
FIRST_TOKENS, SAID_TOKENS = 400, 40
NEW_TOKENS, QUICK_NEW_TOKENS = 32, 8


def main() -> None:
    """Measure, print a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help=f"one session, {QUICK_NEW_TOKENS} tokens an answer"
    )
    parser.add_argument("--peers", default="kept,llama_cpp", help="which, with commas")
    parser.add_argument("--weights", default="auto", choices=WEIGHTS, help="the form of ours")
    parser.add_argument("--data", type=Path, help="a JSON file of conversations, for real text")
    options = parser.parse_args()
    names = [name for name in options.peers.split(",") if name]
    if unknown := sorted(set(names) - set(PEERS)):
        parser.error(f"no such peer: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    num_new = QUICK_NEW_TOKENS if options.quick else NEW_TOKENS
    with loaded(options.weights) as (model, module):
        words = Words(model, options.data)
        engines: dict[str, Engine] = {"agentmem": agentmem(model)}
        if "kept" in names:
            engines["kept"] = kept(module)
        engines |= peers(module, [name for name in names if name == "llama_cpp"])
        for engine in engines.values():
            engine([words.prompt(100, nonce="warm-up")], 4)
        runs = [
            converse(engines, words, num_new, nonce=f"Session {number}.")
            for number in range(1 if options.quick else 3)
        ]
        report(model, words, runs, num_new)


def converse(
    engines: dict[str, Engine], words: Words, num_new: int, *, nonce: str
) -> dict[str, list[Measured]]:
    """Give each engine's turns; engines alternate, so that a slow minute hits all."""
    prompts = dict.fromkeys(engines, words.prompt(FIRST_TOKENS, nonce=nonce))
    turns: dict[str, list[Measured]] = {name: [] for name in engines}
    for turn in range(NUM_TURNS):
        said = words.prompt(SAID_TOKENS, nonce=f"Turn {turn}", first=300 + 10 * turn)
        for name, engine in engines.items():
            done = engine([prompts[name]], num_new)
            turns[name].append(done)
            prompts[name] += done.answers[0] + said
            assert len(done.answers[0]) == num_new - 1, f"{name} ended early"
    return turns


def report(
    model: LocalModel, words: Words, runs: list[dict[str, list[Measured]]], num_new: int
) -> None:
    """Print the table and the JSON line."""
    figures = {}
    print(f"{'':>10} {'wall s':>8} {'TTFT s':>8} {'first':>8} {'prefill':>8} {'tok/s':>7}")
    for name in runs[0]:
        wall_s = statistics.median(sum(turn.wall_s for turn in run[name]) for run in runs)
        ttft_s = statistics.median(turn.ttft_s[0] for run in runs for turn in run[name][1:])
        first_s = statistics.median(run[name][0].ttft_s[0] for run in runs)
        figures[name] = {
            "wall_s": round(wall_s, 3),
            "ttft_p50_s": round(ttft_s, 3),
            "ttft_first_s": round(first_s, 3),
            "prefill_tokens": sum(turn.prefill_tokens for turn in runs[-1][name]),
        }
        prefill = figures[name]["prefill_tokens"]
        speed = NUM_TURNS * num_new / wall_s
        print(
            f"{name:>10} {wall_s:>8.2f} {ttft_s:>8.3f} {first_s:>8.3f} {prefill:>8} {speed:>7.1f}"
        )
    ours = figures["agentmem"]["wall_s"]
    ratios = {
        name: round(row["wall_s"] / ours, 3) for name, row in figures.items() if name != "agentmem"
    }
    print(f"their wall time over ours: {ratios}")
    print_json(
        {
            "benchmark": "session",
            "engines": figures,
            "ratios": ratios,
            "turns": NUM_TURNS,
            "new_tokens": num_new,
            "runs": len(runs),
            "text": words.source,
            "dtype": model.dtype,
            "device": model.device,
        }
    )


if __name__ == "__main__":
    main()
