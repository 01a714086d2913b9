"""What an answer would answer: the end of a branch, read back from its newest message."""

from collections.abc import Iterator

from agentmem.errors import InvalidInputError, TranscriptError
from agentmem.memory.runtime import Runtime
from agentmem.types import BranchId, Inherit, Origin, Role, StoredMessage

_PAGE = 16


def make_answerable(runtime: Runtime, branch_id: BranchId) -> None:
    """
    Close the calls that are open, and see that the branch ends in something to answer.

    Raises:
        TranscriptError: it ends in an answer.
        InvalidInputError: nothing has been said on it yet.
        ConflictError: a call is open on a branch that has ended.
    """
    if runtime.store.messages.close_calls(runtime.scope, branch_id):
        runtime.tell_added()
        return
    for stored in _backwards(runtime, branch_id):
        role, origin = stored.message.role, stored.origin
        if role in (Role.USER, Role.TOOL) or origin in (Origin.PROMOTED, Origin.CUT):
            return
        # What was broken off is answered anew; an answer without a word has answered nothing.
        if not stored.message.is_blank and origin is not Origin.PARTIAL:
            raise TranscriptError(
                f"message {stored.position} has answered what was said last: say something with "
                "reply(text), or have another answer with session.regenerate()"
            )
    raise InvalidInputError(
        "nothing has been said yet that a model could answer: say it with reply(text), or "
        "append() a user's message"
    )


def _backwards(runtime: Runtime, branch_id: BranchId) -> Iterator[StoredMessage]:
    """Yield what the branch ends in, newest first, without what it does not inherit."""
    branch = runtime.store.sessions.branch(runtime.scope, branch_id)
    floor = 0 if branch.inherit is Inherit.ALL else branch.forked_at
    last = branch.head
    while last > floor:
        first = max(floor + 1, last - _PAGE + 1)
        yield from reversed(runtime.store.messages.read(runtime.scope, branch_id, first, last))
        last = first - 1
