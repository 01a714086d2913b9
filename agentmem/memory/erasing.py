"""What can be deleted of a branch for good; compaction and truncation never do."""

from agentmem.memory.aio import in_thread
from agentmem.memory.arguments import pin_scope_of
from agentmem.memory.history import History
from agentmem.types import PinScope


class Erasing(History):
    """A branch of which single messages and pins can be deleted, whatever its state."""

    def delete_message(self, position: int) -> None:
        """
        Delete what a message says, for good; its place and role stay.

        So do the ids and names of its calls, or the transcript would not be legal. A pin that the
        policy made of it loses that text in all versions, summaries that cover it lose theirs; its
        vectors, and cached keys and values of this user, are dropped. What an answer repeats of it
        is another message. In a subtask it is deleted where it stands: an inherited one in the
        parent.

        Raises:
            SessionNotFoundError: there is no message at that position.
        """
        gone = self._store.deletion.message(self._scope, self._branch_id, position)
        self._runtime.forget_cached(gone.messages)

    def delete_pin(self, key: str, *, scope: PinScope | str | None = None) -> None:
        """
        Delete a pin with the texts of all its versions, for good.

        Without a *scope* it is that of the session and of its own line, or the user's if there is
        no other; in a subtask its own. `unpin` only takes it out of the prompts that follow.

        Raises:
            PinNotFoundError: it was never set there.
        """
        pin_scope = None if scope is None else pin_scope_of(scope)
        self._store.deletion.pin(self._scope, self._branch_id, key, pin_scope=pin_scope)
        self._runtime.forget_cached(())

    adelete_message = in_thread(delete_message)
    adelete_pin = in_thread(delete_pin)
