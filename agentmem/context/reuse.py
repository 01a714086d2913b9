"""
The common prefix of a prompt and the previous one of its branch.

Computed from the two layouts, not from the two texts: so it is known after a restart too, without
storing the ids of old prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentmem.context.prompt_messages import PromptMessage
from agentmem.types import DisplayForm, Pin, PrefixBreak, Reuse, Span, Tier


class Shared(Protocol):
    """
    Returns the length of the common prefix of the prompt and a part of it.

    The part is the system message and the first *num_shown* messages of the window, or for None the
    pins only; *is_whole* if that was the whole previous prompt.
    """

    def __call__(self, num_shown: int | None, *, is_whole: bool = False) -> int: ...


PinVersions = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousPrompt:
    """
    The previous prompt: its layout, and the versions of its pins.

    *had_recalled*: whether any message was recalled for it; those of other sessions are in no
    layout.
    """

    layout: tuple[Span, ...]
    pins: PinVersions
    had_recalled: bool = False


def pin_versions(pins: Sequence[Pin]) -> PinVersions:
    """Return scope, key and version of each pin."""
    return tuple((f"{pin.scope}/{pin.key}", pin.version) for pin in pins)


def find_reuse(
    before: PreviousPrompt,
    *,
    pins: PinVersions,
    layout: Sequence[Span],
    window: Sequence[PromptMessage],
    shared: Shared,
) -> Reuse:
    """
    Return the length of the common prefix with the previous prompt, and why it ends.

    A common prefix within differing pins or summaries does not count. *window* has the messages
    that are shown at their position, without replaced ones.
    """
    if before.pins != pins:
        changed = sorted({key for key, _ in set(before.pins) ^ set(pins)})
        return Reuse(common_tokens=0, broken_by=PrefixBreak.PINS, detail=", ".join(changed))
    if _summaries(before.layout) != _summaries(layout):
        return Reuse(common_tokens=shared(None), broken_by=PrefixBreak.COMPACTION)
    old, num_same = _forms(before.layout), _num_same(before.layout, layout, window)
    is_tail = _had_tail(before)
    if is_tail:
        # Recalled messages were before the then current turn, and are no longer there.
        start = _current_start(before.layout)
        num_same = min(num_same, sum(piece.position < start for piece in window))
    if num_same == len(old):
        return Reuse(common_tokens=shared(num_same, is_whole=True), broken_by=None)
    is_only_tail = is_tail and _num_same(before.layout, layout, window) == len(old)
    reason = PrefixBreak.RETRIEVED if is_only_tail else PrefixBreak.COMPACTION
    return Reuse(common_tokens=shared(num_same), broken_by=reason)


def _num_same(
    before: Sequence[Span], layout: Sequence[Span], window: Sequence[PromptMessage]
) -> int:
    """Return the number of common first messages of both windows, with equal groups."""
    old_groups, groups = _groups(before), _groups(layout)
    count = 0
    for piece, place in zip(window, _forms(before), strict=False):
        position = piece.position
        if (position, piece.form, piece.kept_chars) != place:
            break
        if old_groups.get(position) != groups.get(position):
            break
        count += 1
    return count


def _groups(layout: Sequence[Span]) -> dict[int, list[int]]:
    """Return the positions of kept recalled messages, by their anchor."""
    groups: dict[int, list[int]] = {}
    for span in layout:
        if span.anchor is not None:
            groups.setdefault(span.anchor, []).extend(range(span.first, span.last + 1))
    return groups


def _had_tail(before: PreviousPrompt) -> bool:
    """Return whether messages were recalled that are not kept in place."""
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
    """Return the start of the current turn, the anchor of recalled messages."""
    return next((s.first for s in layout if s.tier is Tier.CURRENT), layout[-1].last + 1)
