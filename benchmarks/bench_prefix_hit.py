"""
How much sooner the second turn of a session answers than the same prompt without a cache.

A session with a prefix of 1,500 tokens has had one turn. Measured is the time to the first token
of its second turn, with the prefix cached (warm) and with nothing cached (cold): same prompt, same
process, the dtype that is fast here, medians of 5. Each run has its own nonce at the very front,
so that no run finds what another has left.

A good ratio warm/cold is 0.35 or less; the bound is about suffix / (prefix + suffix), and the
fixed cost of one forward pass.

``ttft_over_bound`` is of hits behind 1,600 tokens with 16, 64 and 256 more: their time to the first
token over the cost of a step with one token plus computed tokens / speed of a prefill, which
`hit_bound` measures beside them. Good is 1.3 or less, in the median of each length.
"""

import argparse
import statistics
from pathlib import Path

from hit_bound import Hit, measure_hits, report_hits
from report import print_json
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from workloads import Words

from agentmem import Sampling
from agentmem.inference import LocalModel
from agentmem.protocols import GenerationRequest
from agentmem.types import GeneratedIds, Generation, Message, Role, TextPart

PREFIX_TOKENS = 1500
TARGET = 0.35


def main() -> None:
    """Measure, print a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two runs in place of five")
    parser.add_argument("--data", type=Path, help="a JSON file of conversations, for real text")
    options = parser.parse_args()
    num_runs = 2 if options.quick else 5
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading the model")
        with LocalModel.load() as model:
            words = Words(model, options.data)
            progress.update(task, description="measuring", total=num_runs + 1)
            runs, hits = [], []
            for number in range(num_runs + 1):
                runs.append(measure(model, f"{number}-of-{num_runs}"))
                hits.append(measure_hits(model, words, f"Hit {number} of {num_runs}."))
                progress.advance(task)
            # The first run only warms up.
            report(model, runs[1:], hits[1:])


def measure(model: LocalModel, nonce: str) -> tuple[Generation, Generation]:
    """Give the second turn's result cold and warm."""
    system = say(Role.SYSTEM, f"Guide {nonce}. " + hotels(model, PREFIX_TOKENS))
    question = say(Role.USER, "Which hotel has room 12?")
    first = answer(model, [system, question], salt="warm")
    ids = GeneratedIds(fingerprint=model.counter.fingerprint, token_ids=first.token_ids)
    reply = Message(role=Role.ASSISTANT, parts=(TextPart(text=first.text),), generated=ids)
    turn = [system, question, reply, say(Role.USER, "And how much is it for two nights?")]
    # Cold comes first, under a salt of its own: it finds nothing and leaves nothing to find.
    return answer(model, turn, salt="cold"), answer(model, turn, salt="warm")


def hotels(model: LocalModel, num_tokens: int) -> str:
    """Write a text of about that many tokens."""
    lines: list[str] = []
    while model.counter.count(say(Role.SYSTEM, " ".join(lines) or "-")) < num_tokens:
        number = len(lines)
        lines.append(f"Hotel {number} has room {number + 3} for {60 + number} EUR.")
    return " ".join(lines)


def say(role: Role, text: str) -> Message:
    """Make a message."""
    return Message(role=role, parts=(TextPart(text=text),))


def answer(model: LocalModel, messages: list[Message], *, salt: str) -> Generation:
    """Generate a short answer."""
    token_ids = model.counter.render(messages).token_ids
    request = GenerationRequest(
        token_ids=token_ids, sampling=Sampling(max_tokens=8), cache_salt=salt
    )
    return model.generate(request)


def report(
    model: LocalModel, runs: list[tuple[Generation, Generation]], hits: list[dict[int, Hit]]
) -> None:
    """Print the table and the JSON line."""
    cold = statistics.median(run[0].usage.ttft_s for run in runs)
    warm = statistics.median(run[1].usage.ttft_s for run in runs)
    usage = runs[-1][1].usage
    table = Table(title=f"Second turn of a session, {model.name}, {model.dtype} on {model.device}")
    for heading in ("", "TTFT s (median)", "prompt tokens", "cached", "computed"):
        table.add_column(heading, justify="right")
    for name, ttft_s, index in (("cold", cold, 0), ("warm", warm, 1)):
        one = runs[-1][index].usage
        counts = (one.prompt_tokens, one.cached_tokens, one.computed_tokens)
        table.add_row(name, f"{ttft_s:.3f}", *map(str, counts))
    console = Console()
    console.print(table)
    console.print(f"warm / cold = {warm / cold:.3f} (good: {TARGET} or less)")
    over = report_hits(hits)
    print_json(
        {
            "benchmark": "prefix_hit",
            "ttft_cold_s": round(cold, 4),
            "ttft_warm_s": round(warm, 4),
            "ratio": round(warm / cold, 4),
            "cached_tokens": usage.cached_tokens,
            "prompt_tokens": usage.prompt_tokens,
            "ttft_over_bound": over,
            "runs": len(runs),
            "dtype": model.dtype,
            "device": model.device,
        }
    )


if __name__ == "__main__":
    main()
