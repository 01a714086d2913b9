"""Lines of a session: edit earlier messages, regenerate answers, branch and switch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Unpack

from agentmem.errors import ConflictError, InvalidInputError, SessionNotFoundError
from agentmem.memory.aio import finished, in_thread
from agentmem.memory.arguments import parts_said
from agentmem.memory.conversation import Conversation
from agentmem.memory.reply_options import ReplyOptions, checked_options
from agentmem.types import (
    BranchId,
    BranchInfo,
    Message,
    Part,
    Reply,
    Role,
    SessionInfo,
    StoredMessage,
)
from agentmem.types.checks import is_int

_PAGE = 32
"""Page size in the search for the user's last message."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line(BranchInfo):
    """
    The current line of a session; calling it with a position creates another line there.

    It equals the `BranchInfo` of the same branch.
    """

    begin: Callable[[int, str], BranchInfo] = field(repr=False)

    def __call__(self, *, at: int, name: str = "line") -> BranchInfo:
        """
        Create a line that shares this one up to position *at*, and switch the session to it.

        The old line is kept: `Session.branches()` lists it and `Session.switch()` goes back to it;
        prompts and searches of the session do not see its later messages.

        Raises:
            InvalidInputError: position *at* does not exist, or *name* cannot be stored.
        """
        return self.begin(at, name)

    def plain(self) -> BranchInfo:
        """Return the plain `BranchInfo`."""
        return BranchInfo(**{one.name: getattr(self, one.name) for one in fields(BranchInfo)})

    def __eq__(self, other: object) -> bool:
        return self.plain() == (other.plain() if isinstance(other, Line) else other)

    def __hash__(self) -> int:
        return hash(self.plain())

    def __reduce__(self) -> tuple[Any, ...]:
        told = {one.name: getattr(self, one.name) for one in fields(BranchInfo)}
        return partial(BranchInfo, **told), ()


class LineKeeping(Conversation):
    """A conversation with alternative lines. No message is lost."""

    info: SessionInfo

    @property
    def branch(self) -> Line:
        """The current line; ``session.branch(at=...)`` creates another one."""
        told = super().branch
        return Line(
            **{one.name: getattr(told, one.name) for one in fields(BranchInfo)}, begin=self._begin
        )

    async def abranch(self, *, at: int, name: str = "line") -> BranchInfo:
        """Async form of ``branch(at=...)``."""
        return await finished(self._begin, at, name)

    def edit(
        self, position: int, content: str | Sequence[Part], *, name: str = "edit"
    ) -> StoredMessage:
        """
        Edit the message at *position* on a new line, and continue from there.

        The new line shares the messages before it, and begins with the edited message in the same
        role; the session switches to that line, in every process that opens it. The old line is
        kept, as with ``branch(at=...)``. The cached prefix up to there is reused.

        Raises:
            SessionNotFoundError: no message has that position.
            InvalidInputError: *content* is empty or cannot be stored.
        """
        found = self.messages(position, position)
        if not found:
            raise SessionNotFoundError(f"session {self.info.key!r} has no message {position}")
        old = found[0].message
        message = Message(
            role=old.role,
            parts=parts_said(old.role, content, self._runtime.counter),
            tool_calls=old.tool_calls,
            tool_call_id=old.tool_call_id,
            name=old.name,
        )
        stored = self._store.lines.edit(
            self._scope,
            self._branch_id,
            at=position - 1,
            message=message,
            name=name,
        )
        self._move_to(stored.branch_id)
        self._runtime.notify_appended()
        self._writer.apply_policy(stored)
        return stored

    def regenerate(self, *, at: int | None = None, **options: Unpack[ReplyOptions]) -> Reply:
        """
        Regenerate the answer to the user's last message.

        With *at*, only messages from that position on are replaced. The new answer is on a new
        line, to which the session switches once part of the answer is stored; until then, and if
        there is no answer, the session stays on its line.

        Raises:
            InvalidInputError: no message to answer, no position *at*, or an invalid argument.
            ContextOverflowError, ConfigError, AdmissionError, QueueFullError, DeadlineError: as
                `stream` does.
        """
        checked_options(self._runtime, **options)
        line = self._without_answer(at)
        try:
            return line.reply(**options)
        finally:
            self._settle(line)

    async def aregenerate(self, *, at: int | None = None, **options: Unpack[ReplyOptions]) -> Reply:
        """Async form of `regenerate`; cancellation as for `areply`."""
        checked_options(self._runtime, **options)
        begun: list[Conversation] = []
        try:
            # Stored by the thread itself: a cancelled wait raises although a line was created.
            await finished(lambda: begun.append(self._without_answer(at)))
            return await begun[0].areply(**options)
        finally:
            # Not awaited: a cancelled task may not be allowed to await.
            for line in begun:
                self._settle(line)

    def switch(self, branch_id: BranchId | None = None) -> BranchInfo:
        """
        Switch to another line of this session.

        Without a *branch_id*, follow a switch by another process.

        Raises:
            SessionNotFoundError: the line does not exist in this session.
        """
        if branch_id is None:
            now = self._store.sessions.get(self._scope, self.info.key)
            self._move_to(now.line)
            return self.branch.plain()
        line = self._store.lines.switch(self._scope, self.info.id, branch_id)
        self._move_to(line.id)
        return line

    def delete_line(self, branch_id: BranchId) -> None:
        """
        Permanently delete a line with its messages and all its forks.

        Raises:
            SessionNotFoundError: the line does not exist in this session.
            InvalidInputError: it is the main one, which is deleted with its session.
            ConflictError: the session is on it, or on a fork of it.
        """
        lines = self._store.sessions.branches(self._scope, self.info.id)
        if not any(one.id == branch_id and one.is_line for one in lines):
            raise SessionNotFoundError(f"session {self.info.key!r} has no line {branch_id}")
        now = self._store.sessions.get(self._scope, self.info.key)
        above = self._store.sessions.lineage(self._scope, now.line)
        if branch_id != now.main and any(one.id == branch_id for one in above):
            raise ConflictError(f"the session is on line {branch_id}: switch to another one first")
        gone = self._store.deletion.branch(self._scope, branch_id)
        self._runtime.forget_cached(gone.messages)

    aedit = in_thread(edit)
    aswitch = in_thread(switch)
    adelete_line = in_thread(delete_line)

    def _begin(self, at: int, name: str) -> BranchInfo:
        line = self._store.lines.begin(self._scope, self._branch_id, at=at, name=name)
        self._move_to(line.id)
        return line

    def _without_answer(self, at: int | None) -> Conversation:
        """Create a line that ends with the message to answer, without switching to it."""
        self._runtime.need_model()
        head = super().branch.head
        first = self._last_asked(head) + 1 if at is None else at
        if not is_int(first) or not 1 < first <= head + 1:
            raise InvalidInputError(
                f"there is nothing to answer before position {first!r:.80}: this line has {head} "
                "messages"
            )
        if first == head + 1:
            return self  # no answer yet
        line = self._store.lines.begin(
            self._scope, self._branch_id, at=first - 1, name="regenerate", aside=True
        )
        return Conversation(self._runtime, line.id)

    def _last_asked(self, head: int) -> int:
        """Return the position of the user's last message; 0 for none."""
        last = head
        while last > 0:
            first = max(1, last - _PAGE + 1)
            page = self.messages(first, last)
            asked = (one.position for one in reversed(page) if one.message.role is Role.USER)
            found = next(asked, None)
            if found is not None:
                return found
            last = first - 1
        return 0

    def _settle(self, line: Conversation) -> None:
        """Switch the session to *line* if it has messages of its own; else drop the line."""
        if line is self:
            return
        begun = line.branch
        if begun.head > begun.forked_at:
            self.switch(begun.id)
        else:
            self._store.deletion.branch(self._scope, begun.id)

    def _move_to(self, branch_id: BranchId) -> None:
        self._branch_id = branch_id
        self.info = replace(self.info, line=branch_id)
