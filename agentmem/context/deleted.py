"""Deleted messages, as prompts show them: not at all, where the transcript is legal without."""

from collections.abc import Iterator, Sequence

from agentmem.types import Origin, Role, StoredMessage, Turn


def unneeded(turns: Sequence[Turn]) -> frozenset[int]:
    """
    Find the deleted messages, by position, that a prompt does without.

    An answer, calls with all their results, a second result of a call, and a question of which
    nothing else is left. What is left of the others stands in their place: a call needs its result
    and an answer its question.
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
    Find the deleted results that came after another one of the same call.

    Where the call is not among *turns*, it has left the window, and so has its first result: what
    came later is a second one, in the prompt that lets go of the call and in those after it alike.
    """
    waiting: set[str] = set()
    for stored in (one for turn in turns for one in turn.messages):
        call_id = stored.message.tool_call_id
        if call_id is not None and call_id not in waiting and _is_deleted(stored):
            yield stored.position
        waiting -= {call_id} if call_id is not None else set()
        waiting |= {call.id for call in stored.message.tool_calls}


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
