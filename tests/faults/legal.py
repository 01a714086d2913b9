"""What servers and strict templates ask of a list of messages, written from their rules alone."""

from agentmem.types import Role


def faults(messages, *, to_answer=False):
    """Return what is wrong with *messages*; nothing is a legal list."""
    rest = [message for message in messages if message.role is not Role.SYSTEM]
    found = list(_of_the_system(messages, rest))
    found += [
        f"an empty message of {message.role}"
        for message in rest
        if message.role is not Role.TOOL and message.is_blank and not message.tool_calls
    ]
    ids = [call.id for message in rest for call in message.tool_calls]
    if len(set(ids)) != len(ids):
        found.append(f"call ids repeat: {ids}")
    if to_answer and rest and rest[-1].role is Role.ASSISTANT:
        found.append("it ends in an answer")
    return [*found, *_of_calls(rest)]


def _of_the_system(messages, rest):
    number = len(messages) - len(rest)
    if number > 1 or (number and messages[0].role is not Role.SYSTEM):
        yield "a system message that is not the only one, in front"
    if not rest:
        yield "nothing but the system message"


def _of_calls(rest):
    """Each call has its result directly after it, in the order of the calls."""
    waiting = []
    for message in rest:
        if message.role is Role.TOOL:
            if waiting[:1] != [message.tool_call_id]:
                yield f"the result of {message.tool_call_id!r} where {waiting} wait"
            waiting = [one for one in waiting if one != message.tool_call_id]
            continue
        if waiting:
            yield f"calls without results: {waiting}"
        waiting = [call.id for call in message.tool_calls]
    if waiting:
        yield f"calls without results: {waiting}"
