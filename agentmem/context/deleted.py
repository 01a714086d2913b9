"""Deleted messages, as prompts show them: not at all, where the transcript is legal without."""

from collections.abc import Iterator, Sequence

from agentmem.types import Origin, Role, StoredMessage, Turn


def unneeded(turns: Sequence[Turn]) -> frozenset[int]:
    """
    Find the deleted messages, by position, that a prompt does without.

    An answer, calls with all their results, and a question of which nothing else is left. What is
    left of the others stands in their place: a call needs its result and an answer its question.
    The last turn keeps its question in any case, which is still to be answered.
    """
    found: set[int] = set()
    for turn in turns:
        gone = set(_answers(turn.messages))
        rest = [one for one in turn.messages if one.position not in gone]
        is_empty = all(_is_deleted(one) and one.message.role is Role.USER for one in rest)
        if is_empty and turn is not turns[-1]:
            gone.update(one.position for one in rest)
        found |= gone
    return frozenset(found)


def _answers(messages: Sequence[StoredMessage]) -> Iterator[int]:
    """Find the deleted answers, and the deleted calls of which every result is deleted too."""
    results: dict[str, list[StoredMessage]] = {}
    for stored in messages:
        if stored.message.tool_call_id is not None:
            results.setdefault(stored.message.tool_call_id, []).append(stored)
    for stored in messages:
        if stored.message.role is not Role.ASSISTANT or not _is_deleted(stored):
            continue
        given = [results.get(call.id, []) for call in stored.message.tool_calls]
        if all(some and all(map(_is_deleted, some)) for some in given):
            yield stored.position
            yield from (one.position for some in given for one in some)


def _is_deleted(stored: StoredMessage) -> bool:
    return stored.origin is Origin.DELETED
