"""Permanent deletion from a branch; compaction and truncation never delete."""

from agentmem.memory.aio import in_thread
from agentmem.memory.arguments import pin_scope_of
from agentmem.memory.history import History
from agentmem.types import PinScope


class Erasing(History):
    """A branch whose messages and pins can be deleted, in any state."""

    def delete_message(self, position: int) -> None:
        """
        Permanently delete the content of a message; its position and role are kept.

        The ids and names of its calls are kept too, so that the transcript is valid. Deleted with
        it are the text of its automatic pin in all versions, the texts of summaries that cover it,
        its vectors, and the user's cached keys and values. Quotations in answers are other
        messages. In a subtask an inherited message is deleted in the parent.

        Raises:
            SessionNotFoundError: no message has that position.
        """
        gone = self._store.deletion.message(self._scope, self._branch_id, position)
        self._runtime.forget_cached(gone.messages)

    def delete_pin(self, key: str, *, scope: PinScope | str | None = None) -> None:
        """
        Permanently delete a pin with the texts of all its versions.

        Without a *scope* it is that of the session and of its line, or the user's if there is no
        other; in a subtask the subtask's. `unpin` only removes it from later prompts.

        Raises:
            PinNotFoundError: it was never set in that scope.
        """
        pin_scope = None if scope is None else pin_scope_of(scope)
        self._store.deletion.pin(self._scope, self._branch_id, key, pin_scope=pin_scope)
        self._runtime.forget_cached(())

    adelete_message = in_thread(delete_message)
    adelete_pin = in_thread(delete_pin)
