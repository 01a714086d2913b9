"""
Play random sessions and count where an invariant of the context breaks.

Each session is a random conversation (sizes up to three windows, tool loops with parallel calls
answered in any order, thoughts, pictures, CJK, emoji, JSON, text that spells control tokens or
another's label, empty results) under a random budget from 64 tokens up, assembled after each step.
Half of them replay the context alone, in three groups: everything fits / the user's message fits
but its tool loop does not / the pins alone do not fit, which is to be a typed error. The other half
drives a `Memory`, with subtasks, late results, deletions and recall. A good result is 0 in every
column of faults.

    python benchmarks/fuzz_context.py --sessions 10000 [--tokenizer words|smollm2]
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz_checks import FAULTS, Said, check_prompt
from fuzz_memory import run_memory_session
from fuzz_slides import slides_too_often
from fuzz_talk import Talk

from agentmem.config import Budget
from agentmem.context import DiscardOldResults, Policy
from agentmem.errors import ContextOverflowError
from agentmem.protocols import Hit, TokenCounter
from agentmem.testing import WordCounter
from agentmem.types import Message, Prompt, Role, TextPart, common_prefix
from agentmem.types.passages import split_passages
from tests.builders import pin
from tests.context.replay import Replay

_SEEN = ("with_summaries", "with_recalled", "with_passages", "late_refused")
GROUPS = ("fits", "loop", "pins", "memory")


def _steps(talk: Talk, group: str) -> Iterator[list[Message]]:
    """Yield the messages that are said between two assemblies; every transcript is legal."""
    rng, window = talk.rng, talk.window
    for _ in range(rng.randrange(1, 9)):
        small = group == "loop" or rng.random() < 0.5
        size = rng.randrange(1, max(2, window // 8)) if small else talk.size()
        yield [talk.user(size)]
        loops = rng.randrange(2, 9) if group == "loop" else rng.choice((0, 0, 0, 1, 2, 5))
        for _ in range(loops):
            calling = talk.calling()
            ids = [call.id for call in calling.tool_calls]
            said = [calling, *(talk.result(i) for i in rng.sample(ids, len(ids)))]
            if rng.random() < 0.2:
                yield said[: rng.randrange(1, len(said) + 1)]
                break
            yield said
        if rng.random() < 0.8:
            yield [talk.answer(talk.size() // 2)]


def _close_calls(replay: Replay, said: list[Message]) -> list[Message]:
    """Answer calls that are still open before the talk goes on, as the store does."""
    waiting: dict[str, None] = {}
    for stored in replay.messages:
        waiting |= dict.fromkeys(call.id for call in stored.message.tool_calls)
        waiting.pop(stored.message.tool_call_id or "", None)
    if said[0].role is Role.TOOL or not waiting:
        return said
    none = (TextPart(text="[none]"),)
    return [*(Message(role=Role.TOOL, parts=none, tool_call_id=i) for i in waiting), *said]


def _hits(rng: random.Random, replay: Replay) -> list[Hit]:
    """Recall anything that was said, as a bad retriever might; copies too, some of it elsewhere."""
    found = rng.sample(replay.messages, min(len(replay.messages), rng.choice((0, 0, 1, 4))))
    texts = {one.message.text for one in found}
    found += [one for one in replay.messages if one.message.text in texts and one not in found]
    hits = [Hit(stored=one, score=rng.random(), is_local=rng.random() < 0.8) for one in found]
    return [part for hit in hits for part in _parts(rng, hit)]


def _parts(rng: random.Random, hit: Hit) -> list[Hit]:
    """Return some of the passages of a long message, or any parts of one, or the whole of it."""
    text = hit.stored.message.memory_text
    passages = list(split_passages(text))
    if rng.random() < 0.3 and len(text) > 1:
        cuts = sorted(rng.sample(range(len(text)), 2))
        passages = [(0, cuts[0] + 1), (cuts[0], cuts[1]), (cuts[1], len(text))]
    if len(passages) == 1 or rng.random() < 0.3:
        return [hit]
    some = rng.sample(passages, rng.randrange(1, len(passages) + 1))
    return [replace(hit, passages=(one,), score=rng.random()) for one in some]


def run_session(seed: int, counter: TokenCounter) -> tuple[str, Counter[str]]:
    """Play one random session; return its group and its faults."""
    rng = random.Random(seed)
    group = rng.choice(("fits", "loop", "pins"))
    window = rng.choice((64, 80, 128, 256, 512, 1024, 4096))
    budget = Budget(
        context=window + 8,
        reply=8,
        low_water=rng.choice((0.0, 0.3, 0.5, 0.8, 1.0)),
        summary=rng.choice((0, 0.15, 0.4)),
        retrieved=rng.choice((0, 0.1, 0.3)),
    )
    policies = (Policy(), Policy(summarizer=None), Policy(discardable=DiscardOldResults()))
    policy = replace(rng.choice(policies), keep_recalled=rng.random() < 0.5)
    size = window if group == "pins" else rng.randrange(1, max(2, window // 8))
    talk = Talk(rng, window)
    pins = [pin("role", f"p {talk.text('N', size)}"), pin("limit", "never exceed 500 EUR")]
    replay = Replay(budget, pins, policy, counter)
    faults: Counter[str] = Counter()
    last: Prompt | None = None
    for said in _steps(talk, group):
        replay.say(*_close_calls(replay, said))
        last = _assemble(replay, _hits(rng, replay), faults, last)
    faults["conservation_errors"] += len(replay.check())
    # Its sizes are told in words.
    if seed % 8 == 0 and isinstance(counter, WordCounter):
        faults["thrash_sessions"] += slides_too_often(rng, counter)
    return group, faults


def _assemble(
    replay: Replay, hits: list[Hit], faults: Counter[str], last: Prompt | None
) -> Prompt | None:
    """Make and check one prompt; return it, or the one before it where there is none."""
    budget = replay.budget
    try:
        prompt = replay.assemble(hits)
    except ContextOverflowError as error:
        fixed = error.tokens_by_tier.get("pinned", 0) + error.tokens_by_tier.get("template", 0)
        # A core that cannot be clipped far enough, as parallel calls in a window of 64, is
        # refused too; anything that would have fitted is a fault.
        could = fixed + error.tokens_by_tier.get("current", 0) <= budget.prompt
        faults["wrong_errors"] += could
        faults["errors"] += 1
        return last
    faults["prompts"] += 1
    state = Said(messages=replay.messages, pins=replay.pins, counter=replay.counter, budget=budget)
    faults.update(check_prompt(prompt, state))
    if last is not None:
        real = common_prefix(last.token_ids, prompt.token_ids)
        faults["prefix_overstated"] += prompt.reuse.common_tokens > real
    if faults["prompts"] % 3 == 0:
        again = replay.assemble(hits)
        faults["other_bytes"] += again.token_ids != prompt.token_ids
        return again
    return prompt


def play(seed: int, counter: TokenCounter) -> tuple[str, Counter[str]]:
    """Play the session of *seed*: the odd ones drive a `Memory`."""
    return run_memory_session(seed) if seed % 2 else run_session(seed, counter)


def main() -> None:
    """Run the fuzz, print a table and a JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokenizer", choices=("words", "smollm2"), default="words")
    options = parser.parse_args()
    counter: TokenCounter = WordCounter()
    if options.tokenizer == "smollm2":
        from agentmem.inference import LocalModel  # noqa: PLC0415 - loads torch

        counter = LocalModel.load().counter
    started = time.perf_counter()
    groups: dict[str, Counter[str]] = {name: Counter() for name in GROUPS}
    for seed in range(options.seed, options.seed + options.sessions):
        try:
            group, faults = play(seed, counter)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are to be played
            print(f"seed {seed}: {type(error).__name__}: {error}")
            group, faults = "memory" if seed % 2 else "fits", Counter(wrong_errors=1)
        groups[group].update(faults)
        if bad := {name: faults[name] for name in FAULTS if faults[name]}:
            print(f"seed {seed} ({group}): {bad}")
    print(f"{'group':<8}{'prompts':>9}{'errors':>8}" + "".join(f"{n:>20}" for n in FAULTS))
    for name, found in groups.items():
        row = "".join(f"{found[fault]:>20}" for fault in FAULTS)
        print(f"{name:<8}{found['prompts']:>9}{found['errors']:>8}{row}")
    total = sum(groups.values(), Counter())
    seconds = time.perf_counter() - started
    result = {fault: total[fault] for fault in FAULTS} | {
        "sessions": options.sessions,
        "prompts": total["prompts"],
        "typed_errors": total["errors"],
        **{name: total[name] for name in _SEEN},
        "groups": {n: {f: g[f] for f in (*FAULTS, "prompts", "errors")} for n, g in groups.items()},
        "tokenizer": options.tokenizer,
        "seconds": round(seconds, 1),
        "sessions_per_second": round(options.sessions / seconds, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
