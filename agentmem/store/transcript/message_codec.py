"""Encoding of messages in columns: a stored message is decoded to an equal value."""

import json
import struct
from collections.abc import Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from agentmem.errors import InvalidInputError
from agentmem.store.database.damage import UNREADABLE, check_row, damaged
from agentmem.store.database.schema import AnyRow
from agentmem.types import (
    BranchId,
    GeneratedIds,
    ImagePart,
    Message,
    MessageId,
    Origin,
    Part,
    ReasoningPart,
    Role,
    StoredMessage,
    TextPart,
    ToolCall,
)
from agentmem.types.extra import read_extra, write_extra

_EXTRA = "extra"
"""Key of opaque provider data in parts, as ASCII JSON; also the last part of a message."""

_MAX_REMEMBERED = 2048
_MAX_CHARS = 8192
"""Maximum size of a cached message, to bound the cache."""


def to_json(value: object) -> str:
    """Return compact JSON; text is not escaped, so that it can be searched in the database."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encode(message: Message) -> dict[str, Any]:
    """Return the columns of *message*, except its position."""
    calls = [_encode_call(call) for call in message.tool_calls]
    parts = [_encode_part(part) for part in message.parts]
    if message.extra is not None:
        parts.append({"type": _EXTRA, "json": write_extra(message.extra)})
    generated = message.generated
    return {
        "role": message.role.value,
        "parts": to_json(parts),
        "tool_calls": to_json(calls) if calls else None,
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "generated_by": generated.fingerprint if generated else None,
        "generated_ids": _pack(generated.token_ids) if generated else None,
    }


def decode(row: AnyRow | SimpleNamespace, branch_id: BranchId | None = None) -> StoredMessage:
    """
    Decode the message of a row.

    Raises:
        DamagedRowError: the row is not a valid message.
    """
    check_row("message", row)
    try:
        parts = json.loads(row.parts)
        is_last = bool(parts) and parts[-1]["type"] == _EXTRA
        extra = read_extra(parts.pop()["json"]) if is_last else None
        message = Message(
            role=Role(row.role),
            parts=tuple(_decode_part(part) for part in parts),
            tool_calls=_decode_calls(row.tool_calls),
            tool_call_id=row.tool_call_id,
            name=row.name,
            generated=_decode_generated(row),
            extra=extra,
        )
        _refuse_unnamed(message)
        origin = Origin(row.origin)
        if row.position < 1:
            raise ValueError(f"position {row.position} is out of range")
    except UNREADABLE as error:
        raise damaged("message", row, None, f"{type(error).__name__}: {error}") from error
    return StoredMessage(
        id=MessageId(row.id),
        branch_id=branch_id or BranchId(row.branch_id),
        position=row.position,
        message=message,
        origin=origin,
        created_at=row.created_at,
        stored_at=row.stored_at,
    )


class Decoder:
    """
    Decodes rows, with a cache by all columns.

    A window is read again for each prompt. Results are never stale: a changed or deleted row is
    another key. Long texts are not cached.
    """

    def __init__(self) -> None:
        # Not a decorator, so that the cache is freed with this object.
        self._decoded = lru_cache(maxsize=_MAX_REMEMBERED)(decode)

    def __call__(self, row: AnyRow) -> StoredMessage:
        """
        Decode the message of a row.

        Raises:
            DamagedRowError: the row is not a valid message.
        """
        if not isinstance(row.parts, str) or not isinstance(row.tool_calls, str | None):
            return decode(row)
        # Provider data is mutable, so it must not be shared between callers.
        is_shared = len(row.parts) <= _MAX_CHARS and not _has_extra(row)
        return self._decoded(row) if is_shared else decode(row)

    def forget(self) -> None:
        """Clear the cache."""
        self._decoded.cache_clear()


def _encode_part(part: Part) -> dict[str, str]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return {"type": "image", "url": part.url, "alt": part.alt}
        case ReasoningPart():
            plain = {"type": "reasoning", "text": part.text}
            return plain if part.extra is None else {**plain, _EXTRA: write_extra(part.extra)}


def _decode_part(part: Mapping[str, str]) -> Part:
    match part["type"]:
        case "text":
            return TextPart(text=part["text"])
        case "image":
            return ImagePart(url=part["url"], alt=part["alt"])
        case "reasoning":
            extra = read_extra(part[_EXTRA]) if _EXTRA in part else None
            return ReasoningPart(text=part["text"], extra=extra)
        case unknown:
            raise ValueError(f"unknown kind of part {unknown!r}")


def _decode_calls(text: str | None) -> tuple[ToolCall, ...]:
    if text is None:
        return ()
    return tuple(
        ToolCall(
            id=call_id,
            name=name,
            arguments=arguments,
            extra=read_extra(extra[0][_EXTRA]) if extra else None,
        )
        for call_id, name, arguments, *extra in json.loads(text)
    )


def _encode_call(call: ToolCall) -> list[object]:
    plain: list[object] = [call.id, call.name, call.arguments]
    return plain if call.extra is None else [*plain, {_EXTRA: write_extra(call.extra)}]


def _has_extra(row: AnyRow) -> bool:
    """Whether *row* may have provider data. In a text the quotes would be escaped."""
    mark = f'"{_EXTRA}"'
    return mark in row.parts or mark in (row.tool_calls or "")


def _refuse_unnamed(message: Message) -> None:
    """Reject a call or a result without an id: stored ones have one."""
    ids = [call.id for call in message.tool_calls]
    if message.role is Role.TOOL:
        ids.append(message.tool_call_id or "")
    if not all(ids) or len(set(ids)) != len(ids):
        raise ValueError(f"ids of calls are missing or repeat: {ids}")


def _decode_generated(row: AnyRow | SimpleNamespace) -> GeneratedIds | None:
    if row.generated_by is None:
        return None
    packed = row.generated_ids
    token_ids = struct.unpack(f"<{len(packed) // 4}I", packed)
    return GeneratedIds(fingerprint=row.generated_by, token_ids=token_ids)


def _pack(token_ids: tuple[int, ...]) -> bytes:
    try:
        return struct.pack(f"<{len(token_ids)}I", *token_ids)
    except struct.error as error:
        raise InvalidInputError(f"a token id does not fit 32 bits: {error}") from error
