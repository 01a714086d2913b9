"""
Measures which statements are marked as replaced, on 170 dialogues written for it.

In 67 of them a later message of the user replaces an earlier one; the others are traps: questions,
wishes, rumours, other subjects, exceptions. Good figures are no wrong mark, and at
least .8 of the right ones.

    python benchmarks/replacement_marks.py
"""

import argparse
import json
from pathlib import Path
from typing import Any

from report import print_json

from agentmem.context.replaced_statements import replaced_statements

DATA = Path(__file__).parent / "data" / "update_dialogues.json"


def marks_of(said: list[str]) -> set[tuple[int, int]]:
    """Return the marks that the messages of a user get, as they come: old and new."""
    marks: set[tuple[int, int]] = set()
    for new, text in enumerate(said, 1):
        gone = {old for old, _ in marks}
        earlier = [(n, one) for n, one in enumerate(said[: new - 1], 1) if n not in gone]
        marks |= {(old, new) for old in replaced_statements(text, earlier)}
    return marks


def measure() -> tuple[dict[str, Any], list[str]]:
    """Return the figures, and the dialogues in which a mark is wrong or missing."""
    right = wrong = expected = 0
    faults = []
    for dialogue in json.loads(DATA.read_text("utf-8")):
        found = marks_of(dialogue["said"])
        wanted = {tuple(mark) for mark in dialogue["marks"]}
        right += len(found & wanted)
        wrong += len(found - wanted)
        expected += len(wanted)
        if found != wanted:
            faults.append(f"{sorted(found)} for {sorted(wanted)}: {' | '.join(dialogue['said'])}")
    return {"wrong": wrong, "right": right, "expected": expected}, faults


def main() -> None:
    """Measure, print the faults, then one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    figures, faults = measure()
    print(*faults, sep="\n")
    print_json(figures | {"recall": round(figures["right"] / figures["expected"], 3)})


if __name__ == "__main__":
    main()
