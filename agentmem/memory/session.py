"""Sessions and their subtasks."""

from dataclasses import replace
from types import TracebackType
from typing import Self

from agentmem.context import legal_fork
from agentmem.errors import DamagedRowError, InvalidInputError, SessionNotFoundError
from agentmem.memory.aio import finished, in_thread
from agentmem.memory.arguments import parts_said
from agentmem.memory.conversation import Conversation
from agentmem.memory.history import Audit, History
from agentmem.memory.replier import ServedPrompts
from agentmem.memory.session_lines import LineKeeping
from agentmem.memory.user_runtime import Runtime
from agentmem.types import (
    BranchId,
    BranchInfo,
    BranchState,
    Inherit,
    Message,
    PinScope,
    Prompt,
    Role,
    SessionInfo,
    TextPart,
    Tier,
    check_name,
    common_prefix,
)
from agentmem.types.short_repr import short_repr
from agentmem.types.text import check_text


class _Forkable(Conversation):
    """A conversation that can delegate work to subtasks."""

    def subtask(self, name: str, *, inherit: Inherit | str = Inherit.ALL) -> "Subtask":
        """
        Fork a subtask here; use it as a ``with`` block.

        With ``inherit="all"`` it has the messages that this branch shows, and shares its prefix and
        KV cache; with ``"pins"`` only the pins and the promoted results of earlier subtasks. With
        an open call it forks before that call.

        Raises:
            InvalidInputError: *name* is empty or *inherit* unknown.
            ConflictError: this branch has ended.
        """
        check_name("subtask name", name)
        self._require_open()
        branch = self.branch
        # Open calls are in the last turn, and so are all pending results.
        lowest = 1 if branch.is_line else branch.forked_at + 1
        first = branch.head
        tail = self.messages(first, branch.head)
        while first > lowest and tail[0].message.role is not Role.USER:
            first = max(lowest, first - 16)
            tail = self.messages(first, branch.head)
        info = self._store.sessions.fork(
            self._scope,
            self._branch_id,
            name=name,
            inherit=_inherit(inherit),
            at=legal_fork(tail, branch.head),
        )
        return Subtask(self._runtime, info.id, depth=self._depth + 1)

    async def asubtask(self, name: str, *, inherit: Inherit | str = Inherit.ALL) -> "Subtask":
        """Async form of `subtask`, usable as an ``async with`` block."""
        return await finished(self.subtask, name, inherit=inherit)


class Session(_Forkable, LineKeeping):
    """
    One conversation of one user, on its line at the time of opening.

    That is its main branch, until a message is edited or an answer regenerated.
    """

    def __init__(self, runtime: Runtime, info: SessionInfo) -> None:
        super().__init__(runtime, info.line)
        self.info = info

    def __repr__(self) -> str:
        return short_repr("Session", self.key, user=self._scope.user, branch=self._branch_id)

    @property
    def key(self) -> str:
        return self.info.key

    def delete_subtask(self, branch_id: BranchId) -> None:
        """
        Permanently delete a subtask with its messages, pins and nested subtasks.

        Its promoted results are messages of the parent; delete those with `delete_message`.

        Raises:
            SessionNotFoundError: the subtask does not exist in this session.
        """
        self._depth_of(branch_id)
        gone = self._store.deletion.branch(self._scope, branch_id)
        self._runtime.forget_cached(gone.messages)

    def branches(self) -> tuple[BranchInfo, ...]:
        """List all lines and subtasks, also ended ones and those of killed processes."""
        return self._store.sessions.branches(self._scope, self.info.id)

    def history(self, branch_id: BranchId) -> History:
        """
        Return read access to a branch of this session, such as an ended subtask.

        Raises:
            SessionNotFoundError: the branch does not exist in this session.
        """
        found = self._runtime.store.sessions.branch(self._runtime.scope, branch_id)
        if found.session_id != self.info.id:
            raise SessionNotFoundError(f"session {self.key!r} has no branch {branch_id!r:.50}")
        return History(self._runtime, branch_id)

    def resume_subtask(self, branch_id: BranchId) -> "Subtask":
        """
        Resume a subtask, to continue, end or discard it.

        Promotions of a killed process that were not handed back are lost.

        Raises:
            SessionNotFoundError: the subtask does not exist in this session.
        """
        return Subtask(self._runtime, branch_id, depth=self._depth_of(branch_id))

    def audit(
        self, *, integrity: bool = False, head: str | None = None, key: str | None = None
    ) -> tuple[Audit, ...]:
        """
        Check each branch of this session as `check` does, main first.

        Raises:
            InvalidInputError: as for `check`.
        """
        found = self._store.heads.verify(
            self._scope, self.info.id, integrity=integrity, head=head, key=key
        )
        return tuple(
            replace(
                History(self._runtime, branch.id).audit_branch(),
                discrepancies=tuple(one for one in found if one.branch_id == branch.id),
            )
            for branch in self.branches()
        )

    adelete_subtask = in_thread(delete_subtask)
    abranches = in_thread(branches)
    ahistory = in_thread(history)
    aresume_subtask = in_thread(resume_subtask)
    aaudit = in_thread(audit)

    def _depth_of(self, branch_id: BranchId) -> int:
        """
        Return the nesting level of a subtask, itself included.

        Raises:
            InvalidInputError: *branch_id* is not an int.
            SessionNotFoundError: the subtask does not exist in this session.
            DamagedRowError: its parent does not exist.
        """
        if not isinstance(branch_id, int):
            raise InvalidInputError(f"a subtask is named by its id, an int, got {branch_id!r:.80}")
        branches = {branch.id: branch for branch in self.branches()}
        depth = 0
        found = branches.get(branch_id)
        while found is not None and not found.is_line:
            depth += 1
            if found.parent not in branches:
                raise DamagedRowError(
                    "branch",
                    column="parent_id",
                    session=self.key,
                    branch=found.name,
                    reason=f"branch {found.parent} does not exist",
                )
            found = branches[found.parent]
        if depth == 0:
            raise SessionNotFoundError(f"session {self.key!r} has no subtask {branch_id}")
        return depth


class Subtask(_Forkable):
    """
    A branch for one piece of work. Only promoted results go back to its parent.

    At the end of its ``with`` block its messages leave the context and its KV blocks are released;
    its rows stay in the store. If the block raises, nothing is promoted. On a shortage of KV blocks
    those of a subtask are evicted before those of its parent.
    """

    _default_scope = PinScope.BRANCH

    def __init__(self, runtime: Runtime, branch_id: BranchId, *, depth: int) -> None:
        self._served = ServedPrompts()
        super().__init__(runtime, branch_id, depth=depth, served=self._served)
        self._promoted: list[Message] = []

    def promote(self, text: str, *, tool_call_id: str | None = None) -> None:
        """
        Promote *text* to the parent when this subtask ends.

        It is appended as an assistant message, or as the result of the parent's call
        *tool_call_id*. If that call has a result by then, or was closed, it is a later message that
        names the call; so it is if the parent never made the call and has other open calls; without
        open calls a synthetic call of that id is inserted.

        Raises:
            InvalidInputError: *text* cannot be stored, or is blank and not a result, or
                *tool_call_id* is not an id.
            ConflictError: this subtask has ended.
        """
        self._require_open()
        if tool_call_id is not None and not check_text("tool_call_id", tool_call_id):
            raise InvalidInputError(
                "tool_call_id is empty: it is the id of a call of the parent, or None for a text"
            )
        role = Role.ASSISTANT if tool_call_id is None else Role.TOOL
        if not TextPart(text=text).text.strip() and role is Role.ASSISTANT:
            raise InvalidInputError("nothing to hand back: the text is blank")
        parts = parts_said(role, text, self._runtime.counter)
        message = Message(role=role, parts=parts, tool_call_id=tool_call_id)
        self._promoted.append(message)

    def end(self) -> None:
        """
        End the subtask and hand back its promoted results, atomically.

        Raises:
            ConflictError: it has ended already, or has promoted results and the parent has ended.
        """
        self._require_open()
        self._store.messages.merge(self._scope, self._branch_id, self._promoted)
        self._runtime.notify_appended()
        self._free_scratch()

    def discard(self) -> None:
        """
        End the subtask without handing back results.

        Raises:
            ConflictError: it has ended already.
        """
        self._require_open()
        self._store.sessions.set_state(
            self._scope,
            self._branch_id,
            expected=BranchState.OPEN,
            state=BranchState.DISCARDED,
        )
        self._free_scratch()

    apromote = in_thread(promote)
    aend = in_thread(end)
    adiscard = in_thread(discard)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.branch.state is not BranchState.OPEN:
            return
        if error is None:
            self.end()
        else:
            self.discard()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is GeneratorExit:
            # Its coroutine was dropped, as with a loop that is closed: it cannot wait any more.
            self.__exit__(kind, error, trace)
        else:
            await finished(self.__exit__, kind, error, trace)

    def _free_scratch(self) -> None:
        """Evict the KV of this branch's messages; the parent's prefix stays cached."""
        prompt, model = self._served.first, self._runtime.model
        if prompt is None or model is None:
            return
        inherited = self._inherited_ids(prompt)
        for ids in reversed(self._served.token_ids):
            model.discard_prefix(
                ids, num_kept=common_prefix(ids, inherited), cache_salt=self._runtime.cache_salt
            )

    def _inherited_ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the ids of the parent's part of this branch's first prompt."""
        forked_at = self.branch.forked_at
        window = (s for s in prompt.layout if s.tier in (Tier.RECENT, Tier.CURRENT))
        num_inherited = sum(max(0, min(s.last, forked_at) - s.first + 1) for s in window)
        num_system = sum(message.role is Role.SYSTEM for message in prompt.messages[:1])
        shared = prompt.messages[: num_system + num_inherited]
        if not shared:
            return ()
        counter = self._runtime.need_counter()
        return counter.render(shared, add_generation_prompt=False).token_ids


def _inherit(inherit: Inherit | str) -> Inherit:
    try:
        return Inherit(inherit)
    except ValueError as error:
        names = ", ".join(Inherit)
        raise InvalidInputError(f"there is no inherit {inherit!r}: it is one of {names}") from error
