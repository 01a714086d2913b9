"""
Keeps transcripts valid: each call has a result and each result a call, matched by an index.

A branch has the calls of inherited messages only.

An open call gets a synthetic result when the conversation continues. One late result is stored: its
`Origin` says whether a prompt may show it in place of the synthetic one. Promoted results of
subtasks are always stored.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, insert, or_, select, update

from agentmem.errors import TranscriptError
from agentmem.store.database.damage import check_row
from agentmem.store.database.schema import AnyRow, AssemblyRow, BranchRow, MessageRow, ToolCallRow
from agentmem.store.database.tenancy import digest
from agentmem.store.transcript.branches import ancestors, lineage
from agentmem.store.transcript.call_ids import with_ids
from agentmem.types import BranchId, Inherit, Message, Origin, Role, TextPart, ToolCall

NO_RESULT: Final = "[no result was recorded for this call]"

_COLUMNS: Final = (
    ToolCallRow.branch_id,
    ToolCallRow.call_id,
    ToolCallRow.name,
    ToolCallRow.position,
)
_OPEN: Final = (
    select(*_COLUMNS)
    .where(ToolCallRow.branch_id == bindparam("branch"), ToolCallRow.answered_at.is_(None))
    .order_by(ToolCallRow.id)
)
_OPEN_AT: Final = (
    select(*_COLUMNS)
    .where(
        ToolCallRow.branch_id == bindparam("branch"),
        ToolCallRow.position <= bindparam("at"),
        or_(ToolCallRow.answered_at.is_(None), ToolCallRow.answered_at > bindparam("at")),
    )
    .order_by(ToolCallRow.id)
)
# The newest call of that id; a late result is a separate row, made and answered at its position.
_MADE: Final = (
    select(ToolCallRow.branch_id, ToolCallRow.name, ToolCallRow.answered_at, MessageRow.origin)
    .outerjoin(
        MessageRow,
        and_(
            MessageRow.branch_id == ToolCallRow.branch_id,
            MessageRow.position == ToolCallRow.answered_at,
        ),
    )
    .where(
        ToolCallRow.branch_id == bindparam("branch"),
        ToolCallRow.digest == bindparam("digest"),
        ToolCallRow.position <= bindparam("last"),
    )
    .order_by(ToolCallRow.position.desc(), ToolCallRow.id.desc())
    .limit(1)
)
_SHOWN: Final = (
    select(AssemblyRow.id)
    .join(BranchRow, BranchRow.id == AssemblyRow.branch_id)
    .where(BranchRow.session_id == bindparam("session"), AssemblyRow.head >= bindparam("at"))
    .limit(1)
)
_ANSWER: Final = (
    update(ToolCallRow)
    .where(
        ToolCallRow.branch_id == bindparam("branch"),
        ToolCallRow.digest == bindparam("call"),
        ToolCallRow.position == bindparam("made_at"),
        ToolCallRow.answered_at.is_(None),
    )
    .values(answered_at=bindparam("now_at"))
)
_SET_OPEN: Final = (
    update(BranchRow)
    .where(BranchRow.id == bindparam("branch"))
    .values(open_calls=bindparam("number"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call, and the positions where it was made and answered."""

    id: str
    name: str
    position: int
    answered_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMessage:
    """A message with its position, ready to insert."""

    position: int
    message: Message
    origin: Origin


class TranscriptRepair:
    """
    Plans new messages after a branch's head, with the synthetic ones that keep it valid.

    It only plans: the caller inserts `entries`, and `write_calls` the calls.
    """

    def __init__(self, connection: Connection, branch: AnyRow) -> None:
        self.entries: list[PendingMessage] = []
        self._connection = connection
        self._branch = branch
        self._open = _open_calls(connection, branch) if branch.open_calls else []
        self._made: list[Call] = []
        self._answered: list[Call] = []
        self._results: dict[str, tuple[Call, str]] = {}

    @property
    def head(self) -> int:
        """Position of the newest message, planned ones included."""
        return int(self._branch.head) + len(self.entries)

    @property
    def num_open(self) -> int:
        """Open calls."""
        return len(self._open)

    def add(self, message: Message, origin: Origin) -> None:
        """
        Plan one message, with missing synthetic messages before it.

        Raises:
            TranscriptError: a result for a call that has one, or for an unknown call while others
                are open, which would be closed without their results. A promoted one is stored as
                a later message that names its call.
        """
        message = with_ids(message, [(call.id, call.name) for call in self._open], self.head)
        if message.role is Role.TOOL:
            self._answer(message, origin)
            return
        # A promoted result does not close the other open calls.
        if origin is not Origin.PROMOTED or message.tool_calls:
            self.close()
        self._put(message, origin)
        new = [Call(id=c.id, name=c.name, position=self.head) for c in message.tool_calls]
        self._open += new
        self._made += new

    def close(self) -> None:
        """Plan a synthetic result for each open call."""
        for call in tuple(self._open):
            result = Message(
                role=Role.TOOL,
                parts=(TextPart(text=NO_RESULT),),
                tool_call_id=call.id,
                name=call.name,
            )
            self._answer(result, Origin.SYNTHETIC)

    def write_calls(self) -> None:
        """Insert the calls that were made and answered."""
        branch_id = self._branch.id
        answered = {(call.id, call.position): call for call in self._answered}
        if self._made:
            made = [answered.pop((call.id, call.position), call) for call in self._made]
            self._connection.execute(insert(ToolCallRow), [_row(branch_id, call) for call in made])
        for call in answered.values():
            self._connection.execute(
                _ANSWER,
                {
                    "branch": branch_id,
                    "call": digest(call.id),
                    "made_at": call.position,
                    "now_at": call.answered_at,
                },
            )

    def _answer(self, result: Message, origin: Origin) -> None:
        call_id = result.tool_call_id or ""
        call = next((call for call in self._open if call.id == call_id), None)
        closed = self._closed(result, origin) if call is None else None
        if closed is not None:
            self._put_late(result, origin, closed)
            return
        if call is None:
            self._refuse_unknown(call_id)
            named = ToolCall(id=call_id, name=result.name or "tool")
            self.add(Message(role=Role.ASSISTANT, tool_calls=(named,)), Origin.SYNTHETIC)
            call = self._open[-1]
        named_result = _named(result, call) if origin is Origin.PROMOTED else result
        self._put(named_result, origin)
        self._open.remove(call)
        self._answered.append(replace(call, answered_at=self.head))
        self._results[call_id] = (self._answered[-1], origin)

    def _put_late(self, result: Message, origin: Origin, closed: Call) -> None:
        if origin is Origin.SAID:
            origin = Origin.LATE if self._is_shown(closed) else Origin.REPLACES
        self._put(_named(result, closed), origin)
        self._made.append(replace(closed, position=self.head, answered_at=self.head))
        self._results[closed.id] = (self._made[-1], origin)

    def _is_shown(self, closed: Call) -> bool:
        """
        Whether a prompt of any line or subtask may have shown the synthetic result of the call.

        Approximate: a prompt of another line with as many messages counts too.
        """
        keys = {"session": self._branch.session_id, "at": closed.answered_at or 0}
        return self._connection.execute(_SHOWN, keys).first() is not None

    def _closed(self, result: Message, origin: Origin) -> Call | None:
        """
        Return the call for which *result* is late; None if it gets a synthetic call.

        Raises:
            TranscriptError: that call has its result.
        """
        call_id = result.tool_call_id or ""
        call, by = self._newest(call_id)
        if origin is Origin.PROMOTED:
            here = Call(id=call_id, name=result.name or "tool", position=self.head)
            return call or (here if self._open else None)
        if call is None or by == Origin.SYNTHETIC:
            return call
        raise TranscriptError(
            f"call {call_id!r} has its result already: a call has exactly one, so give a new call "
            "a new id"
        )

    def _newest(self, call_id: str) -> tuple[Call | None, str | None]:
        """Return the newest answered call of that id, and the origin of its result."""
        planned = self._results.get(call_id)
        if planned is not None:
            return planned
        key = digest(call_id)
        for branch, _, last in lineage(self._connection, self._branch):
            keys = {"branch": branch.id, "digest": key, "last": last}
            row = self._connection.execute(_MADE, keys).first()
            if row is not None:
                check_row("tool_call", row)
                # An ancestor's open call cannot be answered by this branch.
                at = row.answered_at or last
                return Call(id=call_id, name=row.name, position=at, answered_at=at), row.origin
            if branch.inherit != Inherit.ALL:
                break
        return None, None

    def _refuse_unknown(self, call_id: str) -> None:
        if self._open:
            waiting = ", ".join(repr(call.id) for call in self._open)
            raise TranscriptError(
                f"there is no call {call_id!r}: the calls without a result are {waiting}"
            )

    def _put(self, message: Message, origin: Origin) -> None:
        self.entries.append(PendingMessage(position=self.head + 1, message=message, origin=origin))


def inherit_open_calls(connection: Connection, parent: AnyRow, *, child: BranchId, at: int) -> None:
    """Return the rows of open calls at the fork, for a new branch."""
    holder = parent
    above = iter(ancestors(connection, parent))
    # The branch that stores the fork position has every call that was open there.
    while at < holder.forked_at and holder.parent_id is not None:
        if holder.inherit != Inherit.ALL:
            return
        holder = next(above)
    rows = connection.execute(_OPEN_AT, {"branch": holder.id, "at": at}).all()
    calls = [_call(row) for row in rows]
    if calls:
        connection.execute(insert(ToolCallRow), [_row(child, call) for call in calls])
        connection.execute(_SET_OPEN, {"branch": child, "number": len(calls)})


def _open_calls(connection: Connection, branch: AnyRow) -> list[Call]:
    rows = connection.execute(_OPEN, {"branch": branch.id})
    return [_call(row) for row in rows]


def _call(row: AnyRow) -> Call:
    check_row("tool_call", row)
    return Call(id=row.call_id, name=row.name, position=row.position)


def _named(result: Message, call: Call) -> Message:
    """Return the name of the tool, for a result that is shown without its call."""
    return result if result.name else replace(result, name=call.name)


def _row(branch_id: int, call: Call) -> dict[str, Any]:
    return {
        "branch_id": branch_id,
        "digest": digest(call.id),
        "call_id": call.id,
        "name": call.name,
        "position": call.position,
        "answered_at": call.answered_at,
    }
