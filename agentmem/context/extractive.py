"""
Extractive summaries: sentences quoted in order. No model.

Deterministic, in any language: first the ledger of standing facts (`ledger`), then the most
salient of the other sentences (`salience`) as far as there is room. Sentences are quoted whole or
not at all; only a label that classifies a statement, such as ``FACT:``, may be omitted.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from agentmem.context.clip_text import MAX_CHARS_PER_TOKEN
from agentmem.context.ledger import ledger_of
from agentmem.context.salience import Sentence, by_worth, sentences_of
from agentmem.context.summary_lines import label_of, line_of
from agentmem.protocols import Passage
from agentmem.types.sentences import OMITTED

_LABEL_SHARE = 3
"""Divisor of the size above which line prefixes are too long, and dates are omitted."""

_MAX_MISSES = 8
"""Statements or sentences in a row that do not fit, after which the others are left."""


class ExtractiveSummarizer:
    """The default summarizer: deterministic, without a model."""

    author = "extractive"

    def __repr__(self) -> str:
        return "ExtractiveSummarizer()"

    def summarize(
        self, passages: Sequence[Passage], *, max_tokens: int, count: Callable[[str], int]
    ) -> str:
        """
        Return sentences of *passages* that fit *max_tokens* by *count*; "" if none does.

        Each line has the chosen sentences of one passage, after its position, date and speaker.
        """
        if any(count(label_of(one)) * _LABEL_SHARE > max_tokens for one in passages[:1]):
            passages = [replace(passage, day=None) for passage in passages]
        page = _Page(passages, count, max_tokens)
        sentences = sentences_of(passages)
        for statement in ledger_of(sentences, passages):
            if page.num_misses == _MAX_MISSES:
                break
            page.add(statement.sentences)
        page.num_misses = 0
        for sentence in by_worth(sentences, max_tokens * MAX_CHARS_PER_TOKEN, page.chosen):
            if page.num_misses == _MAX_MISSES:
                break
            page.add([sentence])
        return page.text()


class _Page:
    """The chosen sentences, and the tokens that are left."""

    def __init__(
        self, passages: Sequence[Passage], count: Callable[[str], int], max_tokens: int
    ) -> None:
        self._passages = passages
        self._count = count
        self._max_tokens = max_tokens
        # A separately counted text has overhead that a line within a text has not.
        self._frame = max(0, 2 * count("a") - count("a\na"))
        self._left = max_tokens - self._frame
        self._shown: set[int] = set()
        self.chosen: list[Sentence] = []
        self.num_misses = 0
        """Additions in a row that did not fit."""

    def add(self, sentences: Sequence[Sentence]) -> None:
        """Add adjacent *sentences* of one passage if they fit."""
        cost = self._cost_of(sentences)
        if cost > self._left:
            self.num_misses += 1
            return
        self._left -= cost
        self._shown.add(sentences[0].passage)
        self.chosen += sentences
        self.num_misses = 0

    def _cost_of(self, sentences: Sequence[Sentence]) -> int:
        """Return the tokens that *sentences* take, with the label of a new line."""
        text = " ".join(sentence.text for sentence in sentences)
        if len(text) > self._left * MAX_CHARS_PER_TOKEN:
            return self._left + 1  # too long, whatever the tokens are
        index = sentences[0].passage
        is_new = index not in self._shown
        line = line_of(self._passages[index], text) if is_new else f"{OMITTED} {text}"
        return self._count(line) - self._frame

    def text(self) -> str:
        """Return the summary; the last chosen are dropped where lines take more together."""
        while self.chosen and self._count(_write(self.chosen, self._passages)) > self._max_tokens:
            self.chosen.pop()
        return _write(self.chosen, self._passages)


def _write(chosen: Sequence[Sentence], passages: Sequence[Passage]) -> str:
    lines = []
    in_order = sorted(chosen, key=lambda s: s.place)
    for index, of_one in groupby(in_order, key=lambda s: s.passage):
        said = list(of_one)
        text = said[0].text
        for before, sentence in pairwise(said):
            text += " " if sentence.number == before.number + 1 else f" {OMITTED} "
            text += sentence.text
        lines.append(line_of(passages[index], text))
    return "\n".join(lines)
