"""Read-only snapshots of a conversation."""

from agentmem.memory.aio import in_thread
from agentmem.memory.user_runtime import Runtime
from agentmem.types import BranchId, Pin, Replacement, StoredMessage
from agentmem.types.short_repr import short_repr


class Snapshot:
    """
    A branch as of a position: its messages, and the pins of that time.

    Messages deleted since are deleted here too.
    """

    def __init__(self, runtime: Runtime, branch_id: BranchId, head: int) -> None:
        self._runtime = runtime
        self._branch_id = branch_id
        self.head = head
        """Position of the newest message."""

    def __repr__(self) -> str:
        return short_repr("Snapshot", branch=self._branch_id, head=self.head)

    def messages(self, first: int = 1) -> tuple[StoredMessage, ...]:
        """Return the messages from position *first* on."""
        store, scope = self._runtime.store, self._runtime.scope
        return store.messages.read(scope, self._branch_id, first, self.head)

    def pins(self) -> tuple[Pin, ...]:
        """Return the pins as of the storage of the newest message; none before the first."""
        newest = self.messages(self.head) if self.head else ()
        if not newest:
            return ()
        store, scope = self._runtime.store, self._runtime.scope
        return store.pins.visible(scope, self._branch_id, before=newest[-1])

    def replacements(self) -> tuple[Replacement, ...]:
        """Return the replacements by messages up to the newest one."""
        store, scope = self._runtime.store, self._runtime.scope
        return store.replacements.visible(scope, self._branch_id, last=self.head)

    amessages = in_thread(messages)
    apins = in_thread(pins)
    areplacements = in_thread(replacements)
