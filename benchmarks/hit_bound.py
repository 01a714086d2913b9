"""
How near the first token of a hit is to the least that it can take.

A hit has to compute its suffix. The bound for that is what a step with one token takes at that
context, plus the suffix at the speed of a long prefill, both measured beside it: the step over the
tokens that the hit's own answer goes on with, the speed over its prefix, just before. Seconds count
from handing in token ids to having chosen the first token: the check of the ids, the keys of the
prompt's blocks, the look-up, the queue, the pass and the sampler are in it; rendering and
tokenizing the messages, and reading the answer, are not.
"""

import statistics
from dataclasses import dataclass

from workloads import Words

from agentmem import Sampling
from agentmem.inference import LocalModel
from agentmem.protocols import GenerationRequest
from agentmem.types import Usage

PREFIX_TOKENS = 1600
SUFFIXES = (16, 64, 256)
TARGET = 1.3
_NEW_TOKENS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One request whose prefix was cached, with what is measured beside it."""

    ttft_s: float
    step_s: float
    tokens_per_s: float
    computed: int

    @property
    def bound_s(self) -> float:
        """The least that its first token can take."""
        return self.step_s + self.computed / self.tokens_per_s

    @property
    def over_bound(self) -> float:
        """What it took over the bound."""
        return self.ttft_s / self.bound_s


def measure_hits(model: LocalModel, words: Words, nonce: str) -> dict[int, Hit]:
    """Compute a prefix that nobody had, then one request behind it for each length of suffix."""
    prefix = words.prompt(PREFIX_TOKENS, nonce=nonce)
    cold = _ask(model, prefix, 1)
    hits = {}
    for number, suffix in enumerate(SUFFIXES):
        # Cut from the end: what a prompt begins with is the same for all.
        said = words.prompt(suffix + 100, nonce=nonce, first=500 + 50 * number)[-suffix:]
        usage = _ask(model, prefix + said, _NEW_TOKENS)
        hits[suffix] = Hit(
            ttft_s=usage.ttft_s,
            step_s=(usage.total_s - usage.ttft_s) / (_NEW_TOKENS - 1),
            tokens_per_s=cold.computed_tokens / cold.ttft_s,
            computed=usage.computed_tokens,
        )
    return hits


def _ask(model: LocalModel, token_ids: tuple[int, ...], num_new: int) -> Usage:
    sampling = Sampling(max_tokens=num_new, ignore_eos=True)
    request = GenerationRequest(token_ids=token_ids, sampling=sampling, cache_salt="bound")
    return model.generate(request).usage


def report_hits(runs: list[dict[int, Hit]]) -> dict[str, float]:
    """Print a row for each length of suffix; give what the first token took over its bound."""
    print(f"{'suffix':>7} {'computed':>8} {'TTFT ms':>8} {'step ms':>8} {'tok/s':>7} {'over':>6}")
    over: dict[str, float] = {}
    for suffix in SUFFIXES:
        hits = [run[suffix] for run in runs]
        over[str(suffix)] = statistics.median(hit.over_bound for hit in hits)
        ttft_ms, step_ms = (
            1000 * statistics.median(getattr(hit, name) for hit in hits)
            for name in ("ttft_s", "step_s")
        )
        speed = statistics.median(hit.tokens_per_s for hit in hits)
        print(
            f"{suffix:>7} {hits[-1].computed:>8} {ttft_ms:>8.1f} {step_ms:>8.1f} {speed:>7.0f} "
            f"{over[str(suffix)]:>6.3f}"
        )
    worst = max(over.values())
    print(f"first token over its bound: {worst:.3f} at most (good: {TARGET} or less)")
    everything = [hit.over_bound for run in runs for hit in run.values()]
    over |= {"median": statistics.median(everything), "max": max(everything)}
    return {name: round(ratio, 4) for name, ratio in over.items()}
