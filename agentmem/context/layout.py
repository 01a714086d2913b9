"""The layout of a prompt, with each position in one span, and the new truncation records."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from agentmem.context.position_ranges import split_at, subtract
from agentmem.context.prompt_messages import PromptMessage
from agentmem.types import (
    BranchId,
    DisplayForm,
    Span,
    StoredMessage,
    Summary,
    Tier,
    TruncationReason,
    TruncationRecord,
)

_RULES: Final = {
    DisplayForm.CLIPPED: TruncationReason.CLIPPED,
    DisplayForm.STUB: TruncationReason.STUBBED,
    DisplayForm.PASSAGES: TruncationReason.NOT_RETRIEVED,
    DisplayForm.REPLACED: TruncationReason.REPLACED,
    DisplayForm.DELETED: TruncationReason.DELETED,
}


def lay_out(
    shown: Iterable[tuple[PromptMessage, Tier]],
    summaries: Sequence[Summary],
    *,
    head: int,
    inherited: int,
) -> tuple[Span, ...]:
    """
    Return the spans of the positions 1 to *head*: each is in exactly one.

    Shown messages take precedence over summarized ones, and the rest is in spans without a tier,
    split at *inherited*, since the two sides are omitted for different reasons.
    """
    taken = join(_runs(shown))
    covers = [
        Span(first=s.first, last=min(s.last, head), tier=Tier.SUMMARY, source=s.key)
        for s in summaries
    ]
    spans = [*taken, *subtract(covers, taken)]
    spans.sort(key=lambda span: span.first)
    whole = [Span(first=1, last=head, tier=None)] if head else []
    gaps = [side for gap in subtract(whole, spans) for side in split_at(gap, inherited)]
    layout = _naming_all(sorted([*spans, *gaps], key=lambda span: span.first), summaries)
    return tuple(layout)


def _naming_all(layout: list[Span], summaries: Sequence[Summary]) -> list[Span]:
    """
    Add each summary, also one that covers recalled messages only.

    The log stores the layout only, and the next prompt shows its summaries.
    """
    named = {span.source for span in layout}
    for summary in summaries:
        if summary.key not in named:
            layout = [part for span in layout for part in _naming(span, summary)]
    return layout


def _naming(span: Span, summary: Summary) -> list[Span]:
    """Split *span*, and set *summary* as the source of the covered part."""
    if span.tier is None or span.source is not None:
        return [span]
    parts = [
        part for half in split_at(span, summary.first - 1) for part in split_at(half, summary.last)
    ]
    return [
        replace(part, source=summary.key)
        if summary.first <= part.first <= part.last <= summary.last
        else part
        for part in parts
    ]


def _runs(shown: Iterable[tuple[PromptMessage, Tier]]) -> Iterator[Span]:
    """Merge neighbours that are shown in full: most of a window is one run."""
    first = last = 0
    of: Tier | None = None
    for piece, tier in shown:
        is_full = piece.form is DisplayForm.FULL and piece.superseded_by is None
        is_plain = is_full and piece.anchor is None
        position = piece.stored.position
        if is_plain and tier is of and position == last + 1:
            last = position
            continue
        if of is not None:
            yield Span(first=first, last=last, tier=of)
        of = tier if is_plain else None
        first = last = position
        if not is_plain:
            yield piece.span(tier)
    if of is not None:
        yield Span(first=first, last=last, tier=of)


def join(spans: Iterable[Span]) -> list[Span]:
    """Merge equal neighbours; clipped, anchored and partial ones stay separate."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda one: one.first):
        last = joined[-1] if joined else None
        is_next = last is not None and last.last + 1 == span.first and last.form == span.form
        is_alike = is_next and last is not None and last.tier == span.tier
        if last is not None and is_alike and not (_has_number(last) or _has_number(span)):
            joined[-1] = Span(first=last.first, last=span.last, tier=span.tier, form=span.form)
        else:
            joined.append(span)
    return joined


def _has_number(span: Span) -> bool:
    numbers = (span.kept_chars, span.anchor, span.superseded_by)
    return bool(span.passages) or any(number is not None for number in numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """Inputs of the truncation records of one prompt."""

    branch_id: BranchId
    layout: Sequence[Span]
    recorded: Sequence[Span]
    """The last layout in the log of this branch; empty for the first prompt."""

    summaries: AbstractSet[str]
    """Keys of the summaries that could have been shown."""

    inherited: int
    loaded: Mapping[int, StoredMessage]
    count: Callable[[StoredMessage], int]
    room: Callable[[], int]

    def records(self) -> tuple[TruncationRecord, ...]:
        """Return records of truncations that are not yet in the log."""
        made: list[TruncationRecord] = []
        for kind in _KINDS:
            now = [span for span in self.layout if kind(span)]
            before = [span for span in self.recorded if kind(span)]
            # A recorded message is not recorded again when a summary covers it later.
            made += [
                self._record(span)
                for span in subtract(now, before)
                if kind not in (_is_covered, _is_part) or not self._was_hidden(span)
            ]
        return tuple(sorted(made, key=lambda record: record.first))

    def _was_hidden(self, span: Span) -> bool:
        hidden = [one for one in self.recorded if _is_hidden(one)]
        return not subtract([span], hidden)

    def _record(self, span: Span) -> TruncationRecord:
        reason, destination = self._reason(span)
        return TruncationRecord(
            branch_id=self.branch_id,
            first=span.first,
            last=span.last,
            tier=self._tier_before(span),
            reason=reason,
            num_tokens=self._num_tokens(span),
            room=self.room(),
            destination=destination,
        )

    def _reason(self, span: Span) -> tuple[TruncationReason, str]:
        if span.form in _RULES:
            return _RULES[span.form], "store"
        if span.tier is Tier.SUMMARY:
            is_parents = span.last <= self.inherited
            return (
                TruncationReason.NOT_INHERITED if is_parents else TruncationReason.WINDOW,
                f"summary {span.source}",
            )
        if self._tier_before(span) is Tier.RETRIEVED:
            return TruncationReason.NOT_RETRIEVED, "store"
        if self._tier_before(span) is Tier.SUMMARY:
            is_there = self._source_before(span) in self.summaries
            return (
                TruncationReason.NO_ROOM if is_there else TruncationReason.SUMMARY_DELETED,
                "store",
            )
        return (
            TruncationReason.NOT_INHERITED
            if span.last <= self.inherited
            else TruncationReason.WINDOW
        ), "store"

    def _tier_before(self, span: Span) -> Tier:
        before = (s.tier for s in self.recorded if s.first <= span.first <= s.last)
        shown_now = span.tier if span.form is not DisplayForm.FULL else None
        return shown_now or next(before, None) or Tier.RECENT

    def _source_before(self, span: Span) -> str | None:
        return next((s.source for s in self.recorded if s.first <= span.first <= s.last), None)

    def _num_tokens(self, span: Span) -> int | None:
        # An unread run is not counted: reading the whole history to log that it is not shown
        # would make the first prompt of a long session slow.
        positions = range(span.first, span.last + 1)
        if not all(position in self.loaded for position in positions):
            return None
        return sum(self.count(self.loaded[position]) for position in positions)


def _is_hidden(span: Span) -> bool:
    return span.tier is None


def _is_covered(span: Span) -> bool:
    return span.tier is Tier.SUMMARY


def _is_clipped(span: Span) -> bool:
    return span.form is DisplayForm.CLIPPED


def _is_stub(span: Span) -> bool:
    return span.form is DisplayForm.STUB


def _is_part(span: Span) -> bool:
    return span.form is DisplayForm.PASSAGES


def _is_replaced(span: Span) -> bool:
    return span.form is DisplayForm.REPLACED


def _is_deleted(span: Span) -> bool:
    return span.form is DisplayForm.DELETED


_KINDS: Final = (
    *(_is_hidden, _is_covered, _is_clipped, _is_stub),
    *(_is_part, _is_replaced, _is_deleted),
)
"""Kinds of spans that are recorded, each by itself."""
