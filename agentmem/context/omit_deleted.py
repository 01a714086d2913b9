"""Deleted messages are omitted where the transcript is valid without their tombstones."""

from collections.abc import Iterator, Sequence

from agentmem.types import Origin, Role, StoredMessage, Turn


def unneeded(turns: Sequence[Turn]) -> frozenset[int]:
    """
    Return the positions of deleted messages that are omitted.

    Answers, calls with all their results, second results of a call, and questions without any
    remaining answer. The tombstones of others are shown: a call needs its result and an answer its
    question.
    """
    found: set[int] = set(_second_results(turns))
    for turn in turns:
        gone = found | set(_answers(turn.messages))
        rest = [one for one in turn.messages if one.position not in gone]
        if all(_is_deleted(one) and one.message.role is Role.USER for one in rest):
            gone.update(one.position for one in rest)
        found |= gone
    return frozenset(found)


def _second_results(turns: Sequence[Turn]) -> Iterator[int]:
    """
    Return the deleted results that came after another one of the same call.

    A call that is not in *turns* was dropped from the window with its first result: later ones are
    second results, in the prompt that drops the call and in all later ones.
    """
    waiting: set[str] = set()
    for stored in (one for turn in turns for one in turn.messages):
        call_id = stored.message.tool_call_id
        if call_id is not None and call_id not in waiting and _is_deleted(stored):
            yield stored.position
        waiting -= {call_id} if call_id is not None else set()
        waiting |= {call.id for call in stored.message.tool_calls}


def _answers(messages: Sequence[StoredMessage]) -> Iterator[int]:
    """Return the deleted answers, and the deleted calls whose results are all deleted too."""
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
