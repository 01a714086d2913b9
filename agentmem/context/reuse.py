"""
What a prompt has in common with the one before it on its branch.

Told from the two accounts, not from the two texts: so it is known after a restart too, without
keeping the ids of old prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentmem.context.pieces import Shown
from agentmem.types import DisplayForm, Pin, PrefixBreak, Reuse, Span, Tier


class Shared(Protocol):
    """
    Counts the tokens that the prompt begins with alike as a part of it.

    The part is the system message and the first *num_shown* messages of the window, or for None
    the pins alone; *is_whole* if that was all of the prompt before.
    """

    def __call__(self, num_shown: int | None, *, is_whole: bool = False) -> int: ...


PinVersions = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """
    The prompt that another goes on from: its layout, and the versions of its pins.

    *had_recalled* tells whether anything was recalled for it: messages of other sessions are in
    no layout.
    """

    layout: tuple[Span, ...]
    pins: PinVersions
    had_recalled: bool = False


def pin_versions(pins: Sequence[Pin]) -> PinVersions:
    """Name each pin with its scope, and its version."""
    return tuple((f"{pin.scope}/{pin.key}", pin.version) for pin in pins)


def find_reuse(
    before: Before,
    *,
    pins: PinVersions,
    layout: Sequence[Span],
    window: Sequence[Shown],
    shared: Shared,
) -> Reuse:
    """
    Return how far this prompt begins like the one before, and why no further.

    Where the texts of pins or summaries differ, what they may have in common by chance does not
    count. *window* has the messages that are shown where they were said, without those that others
    stand for.
    """
    if before.pins != pins:
        changed = sorted({key for key, _ in set(before.pins) ^ set(pins)})
        return Reuse(common_tokens=0, broken_by=PrefixBreak.PINS, detail=", ".join(changed))
    if _summaries(before.layout) != _summaries(layout):
        return Reuse(common_tokens=shared(None), broken_by=PrefixBreak.COMPACTION)
    old, num_same = _forms(before.layout), _num_same(before.layout, layout, window)
    is_tail = _had_tail(before)
    if is_tail:
        # Recalled text stood before the current turn of then, and is gone from there.
        start = _current_start(before.layout)
        num_same = min(num_same, sum(piece.position < start for piece in window))
    if num_same == len(old):
        return Reuse(common_tokens=shared(num_same, is_whole=True), broken_by=None)
    is_only_tail = is_tail and _num_same(before.layout, layout, window) == len(old)
    reason = PrefixBreak.RETRIEVED if is_only_tail else PrefixBreak.COMPACTION
    return Reuse(common_tokens=shared(num_same), broken_by=reason)


def _num_same(before: Sequence[Span], layout: Sequence[Span], window: Sequence[Shown]) -> int:
    """Count the messages that both windows begin with, with the same blocks before them."""
    old_blocks, blocks = _blocks(before), _blocks(layout)
    count = 0
    for piece, place in zip(window, _forms(before), strict=False):
        position = piece.position
        if (position, piece.form, piece.kept_chars) != place:
            break
        if old_blocks.get(position) != blocks.get(position):
            break
        count += 1
    return count


def _blocks(layout: Sequence[Span]) -> dict[int, list[int]]:
    """Return the positions of what is kept recalled, by the position that it stands before."""
    blocks: dict[int, list[int]] = {}
    for span in layout:
        if span.anchor is not None:
            blocks.setdefault(span.anchor, []).extend(range(span.first, span.last + 1))
    return blocks


def _had_tail(before: Before) -> bool:
    """Return whether something was recalled that was not to be kept in its place."""
    recalled = [span for span in before.layout if span.tier is Tier.RETRIEVED]
    if any(span.anchor is None for span in recalled):
        return True
    return before.had_recalled and not recalled


def _summaries(layout: Sequence[Span]) -> list[str]:
    return list(dict.fromkeys(span.source for span in layout if span.source is not None))


def _forms(layout: Sequence[Span]) -> list[tuple[int, DisplayForm, int | None]]:
    """Return each position of the window with its form, in order."""
    return [
        (position, span.form, span.kept_chars)
        for span in layout
        if span.tier in (Tier.RECENT, Tier.CURRENT) and span.form.is_shown
        for position in range(span.first, span.last + 1)
    ]


def _current_start(layout: Sequence[Span]) -> int:
    """Find where the current turn began, before which recalled text stood."""
    return next((s.first for s in layout if s.tier is Tier.CURRENT), layout[-1].last + 1)
