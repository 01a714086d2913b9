"""
Compaction: messages that leave the window are replaced by a summary that covers them.

A summary is accepted only if it is not blank and has fewer tokens than the messages; else these
are dropped without one, with a record. Where a subtask inherits only a summary, short messages are
quoted instead, as far as they fit. When their tier is full, summaries are compacted into one of a
higher level, so their number is bounded for a conversation of any length.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import tzinfo

from agentmem.context.extractive import ExtractiveSummarizer
from agentmem.context.summary_checks import read_summary
from agentmem.context.summary_lines import (
    is_quotation,
    line_of,
    passages_of_messages,
    passages_of_summary,
    with_quotations_checked,
)
from agentmem.protocols import Passage, Summarizer
from agentmem.types import BranchId, StoredMessage, Summary, repair_text

_MIN_TOKENS = 16
"""Minimum tokens of a useful summary."""

_SHORT = 128
"""A conversation of fewer tokens may be quoted in the whole tier."""

_SHARE_OF_TIER = 3
"""Divisor of the tier for the maximum of one summary, so that several fit."""


class SummaryCompactor:
    """
    Keeps the summaries of one branch within *max_tokens*, for one prompt.

    Args:
        count: counts the tokens of a text.
        max_tokens: maximum of all summaries together.
        zone: time zone of dates in summaries; by default that of the messages.
    """

    def __init__(
        self,
        summarizer: Summarizer,
        count: Callable[[str], int],
        max_tokens: int,
        zone: tzinfo | None = None,
    ) -> None:
        self._summarizer = summarizer
        self._zone = zone
        self._count = count
        self._max_tokens = max_tokens
        # The same run may be summarized repeatedly until a prompt fits.
        self._asked: dict[tuple[tuple[Passage, ...], int], tuple[str, str]] = {}

    def compact(
        self,
        branch_id: BranchId,
        summaries: Sequence[Summary],
        leaving: Sequence[StoredMessage],
        *,
        may_quote: bool = False,
    ) -> tuple[Summary, ...]:
        """
        Return the summaries, with the run of *leaving* covered too, if a summary is accepted.

        The run is from the first to the last of *leaving* (at least one); summaries that overlap it
        are compacted into the new one with all that they cover. A run that they cover already needs
        none. With *may_quote* a run without an accepted summary is quoted, and a short one may so,
        with the names of its speakers, become longer than it is.
        """
        first, last = leaving[0].position, leaving[-1].position
        inside = [s for s in summaries if s.first <= last and first <= s.last]
        others = [s for s in summaries if s not in inside]
        new = [m for m in leaving if not any(s.first <= m.position <= s.last for s in inside)]
        if not new:
            return tuple(summaries)
        first, last = (
            min([first, *(s.first for s in inside)]),
            max([last, *(s.last for s in inside)]),
        )
        passages = [line for summary in inside for line in passages_of_summary(summary)]
        names = {call.id: call.name for m in leaving for call in m.message.tool_calls}
        passages += passages_of_messages(new, self._zone, names)
        passages.sort(key=_place)
        made = self._write(branch_id, (first, last), passages, inside)
        if may_quote and (made is None or made.author.startswith(ExtractiveSummarizer.author)):
            author = ExtractiveSummarizer.author if made is None else made.author
            text = self._quote(passages, others)
            if text:
                made = Summary(
                    branch_id=branch_id,
                    first=first,
                    last=last,
                    level=_level_above(inside),
                    text=text,
                    author=author,
                    source_hash=_hash(passages),
                )
        kept = [*others, *(inside if made is None else (made,))]
        return self._within_tier(branch_id, sorted(kept, key=lambda s: s.first))

    def most_tokens(self, num_tokens: int) -> int:
        """Return the maximum size of a summary of *num_tokens* tokens; 0 for none."""
        limit = min(self._max_tokens // _SHARE_OF_TIER, num_tokens // 2)
        return limit if limit >= _MIN_TOKENS else 0

    def _write(
        self,
        branch_id: BranchId,
        run: tuple[int, int],
        passages: Sequence[Passage],
        compacted: Sequence[Summary],
    ) -> Summary | None:
        limit = self.most_tokens(self._size_of(passages))
        if limit == 0:
            return None
        key = (tuple(passages), limit)
        if key not in self._asked:
            self._asked[key] = self._ask(passages, limit)
        text, author = self._asked[key]
        # A summarizer is untrusted: its output is counted.
        if self._count(text) > limit:
            return None
        if not text:
            return None
        return Summary(
            branch_id=branch_id,
            first=run[0],
            last=run[1],
            level=_level_above(compacted),
            text=text,
            author=author,
            source_hash=_hash(passages),
        )

    def _quote(self, passages: Sequence[Passage], others: Sequence[Summary]) -> str:
        """Quote all of *passages*, or the most salient sentences if all are too long."""
        most = self._max_tokens // _SHARE_OF_TIER
        size = self._size_of(passages)
        if size < _SHORT or most < _MIN_TOKENS:
            most = max(most, self._max_tokens - self._size(others))
        # Dates take tokens too, and carry less information than messages.
        undated = [replace(passage, day=None) for passage in passages]
        for lines in (passages, undated) if size <= most else ():
            text = "\n".join(map(line_of, lines))
            if self._count(text) <= most:
                return text
        return ExtractiveSummarizer().summarize(passages, max_tokens=most, count=self._count)

    def _size_of(self, passages: Sequence[Passage]) -> int:
        return sum(self._count(passage.text) for passage in passages)

    def _ask(self, passages: Sequence[Passage], limit: int) -> tuple[str, str]:
        """Return a text and its author; a failing summarizer falls back and does not raise."""
        summarizer = self._summarizer
        try:
            text = repair_text(summarizer.summarize(passages, max_tokens=limit, count=self._count))
        except Exception as error:  # noqa: BLE001 - the user's own code may raise anything
            why = f"{author_of(summarizer)} raised {type(error).__name__}"
        else:
            # Read afterwards: a summarizer that fell back says so in its name.
            author = author_of(summarizer)
            text, reason = checked_summary(text, passages)
            if reason is None:
                return text, _author_of_text(author, text)
            why = f"{author} was rejected: {reason}"
        fallback = ExtractiveSummarizer()
        text = fallback.summarize(passages, max_tokens=limit, count=self._count)
        return text, f"{fallback.author}, since {why}"

    def _within_tier(self, branch_id: BranchId, summaries: list[Summary]) -> tuple[Summary, ...]:
        """Compact all but the newest while they exceed the tier; finally drop the oldest."""
        while summaries and self._size(summaries) > self._max_tokens:
            run = _contiguous(summaries[:-1]) or _contiguous(summaries)
            merged = None
            if run:
                ends = (run[0].first, run[-1].last)
                lines = [line for summary in run for line in passages_of_summary(summary)]
                merged = self._write(branch_id, ends, lines, run)
            if merged is None:
                summaries = summaries[1:]
            else:
                place = summaries.index(run[0])
                summaries[place : place + len(run)] = [merged]
        return tuple(summaries)

    def _size(self, summaries: Sequence[Summary]) -> int:
        return sum(self._count(summary.text) for summary in summaries)


def _level_above(compacted: Sequence[Summary]) -> int:
    return max((summary.level + 1 for summary in compacted), default=0)


def _author_of_text(author: str, text: str) -> str:
    """Return *author*, distinct from the built-in one, whose texts are quotations only."""
    is_foreign = author.startswith(ExtractiveSummarizer.author) and not text.startswith("[")
    return f"own {author}" if is_foreign else author


def checked_summary(text: str, passages: Sequence[Passage]) -> tuple[str, str | None]:
    """
    Return a summarizer's text of *passages* in storable form, and why it is rejected, if so.

    Genuine quotations are kept; in prose, false quotations are marked as prose. An empty text means
    that no summary fits.
    """
    if not text.strip() or is_quotation(text.strip(), passages):
        return text.strip(), None
    cleaned, reason = read_summary(text)
    return with_quotations_checked(cleaned, passages), reason


def author_of(summarizer: Summarizer) -> str:
    """Return the author name of *summarizer*, or its class name."""
    name = type(summarizer).__name__
    try:
        author = summarizer.author
    # A property of a custom class may raise anything. The summary is kept; the log says so.
    except Exception as error:  # noqa: BLE001 - see above
        return f"{name}, whose author raised {type(error).__name__}"
    named = isinstance(author, str) and author.strip()
    return repair_text(author) if named else name


def _contiguous(summaries: Sequence[Summary]) -> list[Summary]:
    """Return the last *summaries* that cover one contiguous run, if more than one."""
    run: list[Summary] = []
    for summary in reversed(summaries):
        if run and summary.last + 1 != run[0].first:
            if len(run) > 1:
                break
            run = []
        run.insert(0, summary)
    return run if len(run) > 1 else []


def _place(passage: Passage) -> int:
    return passage.position


def _hash(passages: Sequence[Passage]) -> str:
    facts = repr([(p.position, p.role.value, p.text, p.last, p.speaker) for p in passages])
    return hashlib.sha256(facts.encode()).hexdigest()[:16]
