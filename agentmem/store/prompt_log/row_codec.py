"""Encoding of the prompt log in rows."""

import json
from collections.abc import Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final

from agentmem.store.database.damage import reading
from agentmem.store.database.schema import AnyRow
from agentmem.store.prompt_log.layout_codec import (
    decode_layout,
    decode_ranges,
    encode_layout,
    encode_ranges,
    named_number,
    number_of,
)
from agentmem.store.transcript.message_codec import to_json
from agentmem.types import (
    AssemblyId,
    AssemblyInfo,
    BranchId,
    DisplayForm,
    Prompt,
    Span,
    Tier,
    TruncationReason,
    TruncationRecord,
    check_text,
    freeze,
)

_MIN_CELLS: Final = 3
_USUAL_CELLS: Final[tuple[Any, ...]] = (DisplayForm.FULL, None, None, 1, [], None)


def encode_prompt(prompt: Prompt, now: datetime) -> dict[str, Any]:
    """Encode a prompt as a row."""
    return {
        "branch_id": prompt.branch_id,
        "head": prompt.head,
        "tokens_by_tier": to_json([prompt.tokens_by_tier.get(tier, 0) for tier in Tier]),
        "layout": to_json(
            encode_layout(prompt.layout) or [encode_span(span) for span in prompt.layout]
        ),
        "prompt_hash": prompt.prompt_hash,
        "pins": to_json(prompt.pins),
        "context": prompt.context,
        "reply": prompt.reply,
        "fingerprint": prompt.fingerprint,
        "created_at": now,
    }


def encode_span(span: Span) -> list[Any]:
    """Encode a single span; trailing default values are omitted."""
    number = number_of(span)
    passages = [list(one) for one in span.passages]
    cells: list[Any] = [span.first, span.last, span.tier, span.form, number, span.source]
    cells += [span.times, passages, span.superseded_by]
    while len(cells) > _MIN_CELLS and cells[-1] == _USUAL_CELLS[len(cells) - 1 - _MIN_CELLS]:
        cells.pop()
    return cells


def to_span(cells: Sequence[Any]) -> Span:
    """Decode the output of `encode_span`."""
    filled: list[Any] = [*cells, *_USUAL_CELLS[len(cells) - _MIN_CELLS :]]
    first, last, tier, form, number, source, times, passages, superseded_by = filled
    return Span(
        first=first,
        last=last,
        tier=None if tier is None else Tier(tier),
        form=DisplayForm(form),
        **named_number(None if tier is None else Tier(tier), number),
        source=source,
        times=times,
        passages=tuple((start, end) for start, end in passages),
        superseded_by=superseded_by,
    )


def encode_records(records: Sequence[TruncationRecord]) -> list[dict[str, Any]]:
    """Encode the records of a prompt as rows without ids: one row per reason."""
    alike: dict[tuple[Any, ...], list[TruncationRecord]] = {}
    for record in records:
        reason = (record.tier, record.reason, record.room, record.destination)
        alike.setdefault(reason, []).append(record)
    return [_encode_alike(group) for group in alike.values()]


def _encode_alike(records: Sequence[TruncationRecord]) -> dict[str, Any]:
    one = records[0]
    ranges = [(record.first, record.last, record.num_tokens) for record in records]
    tokens = [record.num_tokens for record in records if record.num_tokens is not None]
    return {
        "first": min(record.first for record in records),
        "last": max(record.last for record in records),
        "tier": one.tier.value,
        "rule": one.reason.value,
        "num_tokens": sum(tokens) if len(tokens) == len(records) else None,
        "room": one.room,
        "destination": check_text("destination", one.destination),
        "ranges": encode_ranges(ranges) if len(records) > 1 else None,
    }


@reading("assembly")
def to_info(row: AnyRow | SimpleNamespace) -> AssemblyInfo:
    """Decode a row of the prompt log."""
    tokens = json.loads(row.tokens_by_tier)
    layout = json.loads(row.layout)
    if isinstance(tokens, list):
        tokens = dict(zip(Tier, tokens, strict=True))
    else:
        tokens = {Tier(name): number for name, number in tokens.items()}
    return AssemblyInfo(
        id=AssemblyId(row.id),
        branch_id=BranchId(row.branch_id),
        head=row.head,
        tokens_by_tier=freeze(tokens),
        layout=(decode_layout(layout) if isinstance(layout, dict) else tuple(map(to_span, layout))),
        prompt_hash=row.prompt_hash,
        pins=tuple((key, version) for key, version in json.loads(row.pins)),
        context=row.context,
        reply=row.reply,
        fingerprint=row.fingerprint,
        created_at=row.created_at,
    )


def check_info(info: AssemblyInfo) -> None:
    """
    Validate the JSON of a row, which another program may have changed.

    Raises:
        TypeError: a number or a key has a wrong type.
    """
    numbers = [
        *info.tokens_by_tier.values(),
        *(version for _, version in info.pins),
        *(end for span in info.layout for end in (span.first, span.last)),
        *(number for span in info.layout if (number := number_of(span)) is not None),
        *(span.times for span in info.layout),
    ]
    keys = [
        *(key for key, _ in info.pins),
        *(span.source for span in info.layout if span.source is not None),
    ]
    for cell, kind in [*((n, int) for n in numbers), *((k, str) for k in keys)]:
        if type(cell) is not kind:
            raise TypeError(f"{cell!r:.50} is not of type {kind.__name__}")


def is_whole(info: AssemblyInfo) -> bool:
    """Whether a layout has each message once, so that a window can continue from it."""
    try:
        check_info(info)
    except TypeError:
        return False
    spans = sorted(info.layout, key=lambda span: span.first)
    ends = [0, *(span.last for span in spans)]
    is_dense = all(
        span.first == end + 1 <= span.last for span, end in zip(spans, ends, strict=False)
    )
    return is_dense and ends[-1] <= info.head


@reading("truncation")
def to_records(row: AnyRow | SimpleNamespace) -> tuple[TruncationRecord, ...]:
    """Decode the truncation records of a row, with their prompt's branch and time."""
    whole = [(row.first, row.last, row.num_tokens)]
    return tuple(
        TruncationRecord(
            branch_id=BranchId(row.branch_id),
            first=first,
            last=last,
            tier=Tier(row.tier),
            reason=TruncationReason(row.rule),
            num_tokens=num_tokens,
            room=row.room,
            destination=row.destination,
            assembly_id=AssemblyId(row.assembly_id),
            created_at=row.created_at,
        )
        for first, last, num_tokens in (whole if row.ranges is None else decode_ranges(row.ranges))
    )
