"""Prompts to measure engines with: conversations as token ids, alike where they are to be."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentmem.inference import LocalModel
from agentmem.types import Message, Role, TextPart, common_prefix

NUM_SUBTASKS = 8
PREFIX_TOKENS, SUFFIX_TOKENS, NEW_TOKENS = 2000, 60, 32

_PLACES = ("Lisbon", "Porto", "Faro", "Évora", "Braga", "Sintra", "Coimbra", "Tavira")
_SAID = (
    "I looked at the hotel in {place} again, and room {n} costs {price} EUR with breakfast.",
    "Did you ask whether the train to {place} leaves before {hour} in the morning?",
    "My sister was in {place} last year and said that the market by the river is worth {n} visits.",
    "If we stay {n} nights in {place} we are still under the {price} EUR that we put aside.",
    "The museum in {place} is closed on Mondays, so let us go there on the {n}th instead.",
)


class Words:
    """
    Cuts a long conversation into prompts.

    Args:
        model: whose tokens they are.
        data: a JSON file of real conversations; without it, one is made up.
    """

    def __init__(self, model: LocalModel, data: Path | None) -> None:
        self._model = model
        self._lines = list(_invented() if data is None else _texts(json.loads(data.read_text())))
        self.source = "made up" if data is None else data.name

    def prompt(self, num_tokens: int, *, nonce: str, first: int = 0) -> tuple[int, ...]:
        """Give exactly that many ids, of *nonce* and then of lines from *first* on."""
        text, line = nonce, first
        ids: tuple[int, ...] = ()
        while len(ids) < num_tokens:
            # Ten tokens or so a line; asked in steps, since each count renders all of it.
            for _ in range(max((num_tokens - len(ids)) // 20, 1)):
                text += "\n" + self._lines[line % len(self._lines)]
                line += 1
            message = Message(role=Role.USER, parts=(TextPart(text=text),))
            ids = self._model.counter.render([message], add_generation_prompt=False).token_ids
        return ids[:num_tokens]

    def fan_out(self, nonce: str) -> list[tuple[int, ...]]:
        """Give prompts of subtasks that share a prefix, and nothing with another nonce."""
        prefix = self.prompt(PREFIX_TOKENS, nonce=nonce)
        return [
            prefix + self.prompt(SUFFIX_TOKENS, nonce=f"Subtask {n}", first=400 + 40 * n)
            for n in range(NUM_SUBTASKS)
        ]


def least_prefill(prompts: Sequence[tuple[int, ...]], known: list[tuple[int, ...]]) -> int:
    """
    Count the tokens that have to be computed for *prompts*, where nothing is computed twice.

    Args:
        prompts: in their order; of each, the last token has to be seen.
        known: what has been computed before; the prompts are put to it.
    """
    total = 0
    for prompt in prompts:
        total += len(prompt) - max((common_prefix(one, prompt[:-1]) for one in known), default=0)
        known.append(prompt)
    return total


def _texts(data: object) -> Iterator[str]:
    """Find what somebody said in a JSON value, in order."""
    if isinstance(data, dict):
        if isinstance(data.get("text"), str) and isinstance(data.get("speaker"), str):
            yield f"{data['speaker']}: {data['text']}"
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)


def _invented() -> Iterator[str]:
    for n in range(1200):
        said = _SAID[n * 7 % len(_SAID)]
        place = _PLACES[n * 5 % len(_PLACES)]
        yield f"{('Ada', 'Ben')[n % 2]}: " + said.format(
            place=place, n=n % 29 + 2, price=n * 37 % 400 + 60, hour=n % 12 + 1
        )
