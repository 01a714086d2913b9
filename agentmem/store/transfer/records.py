"""
Rows as plain values: the rows of a session, and their import into another database.

Tables and references are read from the schema, so a new table of a session needs one line here.
"""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime
from types import SimpleNamespace
from typing import Any, Final
from zoneinfo import ZoneInfo, available_timezones

from sqlalchemy import (
    Column,
    Connection,
    LargeBinary,
    Select,
    Table,
    Text,
    bindparam,
    func,
    insert,
    select,
)

from agentmem.errors import (
    ConflictError,
    DamagedFileError,
    DamagedRowError,
    InvalidInputError,
    StoreError,
)
from agentmem.store.database.damage import UNREADABLE, check_row, damaged
from agentmem.store.database.schema import (
    AssemblyRow,
    Base,
    BranchRow,
    PinRow,
    PinVersionRow,
    SessionRow,
    UtcDateTime,
)
from agentmem.store.database.tenancy import check_moment
from agentmem.store.lifecycle.losses import link_of
from agentmem.store.prompt_log.row_codec import check_info, to_info, to_records
from agentmem.store.transcript.branches import check_branch, to_branch_info
from agentmem.store.transcript.message_codec import decode, encode
from agentmem.store.transcript.placeholders import stand_in
from agentmem.store.transcript.replacement_rows import to_replacement
from agentmem.store.transcript.sessions import ensure_owner
from agentmem.store.transfer.import_user_pins import UserImport
from agentmem.types import PinScope, Scope, check_text
from agentmem.types.checks import is_int

EXPORTED: Final = (
    "session",
    "branch",
    "message",
    "event",
    "tool_call",
    "append",
    "pin",
    "pin_version",
    "summary",
    "replacement",
    "assembly",
    "truncation",
)
"""
The tables of a session, each after those that its rows refer to.

Without vectors: an import embeds messages again, with its own embedder.
"""

USER_EVENT: Final = "user_event"
_TABLES: Final[Mapping[str, Table]] = Base.metadata.tables
_TARGETS: Final = {"user": "owner_id", "session": "session_id", "branch": "branch_id"}
_BATCH: Final = 500
_INT_BOUND: Final = 2**63

NUM_MAINS: Final = (
    select(func.count())
    .select_from(BranchRow)
    .where(BranchRow.session_id == bindparam("session"), BranchRow.parent_id.is_(None))
)
"""Number of main branches of a session: one, unless corrupt."""


def rows_of_session(session_id: int, connection: Connection) -> Iterator[tuple[Table, Any]]:
    """
    Yield every row of a session, each after those that it refers to.

    Raises:
        DamagedRowError: it has no main branch, so its messages would be missing.
    """
    if not connection.execute(NUM_MAINS, {"session": session_id}).scalar_one():
        row = connection.execute(select(SessionRow).where(SessionRow.id == session_id)).one()
        raise damaged("session", row, None, "it has no main branch")
    branches = select(BranchRow.id).where(BranchRow.session_id == session_id)
    assemblies = select(AssemblyRow.id).where(AssemblyRow.branch_id.in_(branches))
    pins = select(PinRow.id).where(PinRow.session_id == session_id)
    for name in EXPORTED:
        table = _TABLES[name]
        chosen = select(table)
        if name == "session":
            chosen = chosen.where(table.c.id == session_id)
        elif name in {"branch", "pin"}:
            chosen = chosen.where(table.c.session_id == session_id)
        elif name == "pin_version":
            chosen = chosen.where(table.c.pin_id.in_(pins))
        elif name == "truncation":
            chosen = chosen.where(table.c.assembly_id.in_(assemblies))
        else:
            chosen = chosen.where(table.c.branch_id.in_(branches))
        yield from _in_order(connection, table, chosen)


def rows_of_user(owner_id: int, connection: Connection) -> Iterator[tuple[Table, Any]]:
    """Yield the user pins of a user, and the events of their chain."""
    pins, versions, events = (_TABLES[name] for name in ("pin", "pin_version", USER_EVENT))
    chosen = select(pins).where(pins.c.owner_id == owner_id, pins.c.scope == PinScope.USER.value)
    yield from _in_order(connection, pins, chosen)
    of_these = select(chosen.subquery().c.id)
    yield from _in_order(
        connection, versions, select(versions).where(versions.c.pin_id.in_(of_these))
    )
    yield from _in_order(connection, events, select(events).where(events.c.owner_id == owner_id))


def _in_order(
    connection: Connection, table: Table, chosen: Select[Any]
) -> Iterator[tuple[Table, Any]]:
    for row in connection.execute(chosen.order_by(*table.primary_key.columns)):
        yield table, row


def exported(connection: Connection, table: Table, row: Any) -> dict[str, Any]:
    """
    Return a row in export form; for a corrupt message that of its placeholder.

    Raises:
        DamagedRowError: another row is corrupt, and could not be imported.
    """
    plain = to_plain(table, row)
    try:
        check_row(table.name, row)
        _read(table.name, row)
    except DamagedRowError:
        if table.name != "message":
            raise
        stored = stand_in(connection, row)
        link = link_of(row)
        kept = {
            "origin": stored.origin.value,
            "created_at": stored.created_at.isoformat(),
            "stored_at": None,
            # Its content cannot be hashed, so only the link continues the chain.
            "link": None if link is None else _plain(link),
            "nonce": None,
            "sealed": None,
        }
        return {**plain, **encode(stored.message), **kept}
    except UNREADABLE as error:
        raise damaged(table.name, row, None, f"{type(error).__name__}: {error}") from error
    return plain


def to_plain(table: Table, row: Any) -> dict[str, Any]:
    """Return a row as JSON types."""
    return {column.name: _plain(getattr(row, column.name)) for column in table.columns}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else value


class Loader:
    """Inserts the rows of an export with new ids."""

    def __init__(
        self,
        connection: Connection,
        scope: Scope | None,
        namespace: str | None = None,
        *,
        is_chained: bool = False,
    ) -> None:
        self.counts = dict.fromkeys(EXPORTED, 0)
        self._connection = connection
        self._scope = scope
        self._namespace = namespace
        self._owner_id: int | None = None
        self._num_users = 0
        self._named = Scope()
        self.is_chained = is_chained
        self._user: UserImport | None = None
        self.unproven: list[str] = []
        """Users whose pins are not verified by a chain."""
        self.sessions: list[tuple[int, Scope]] = []
        """New ids of sessions, each with its owner in the exporting database."""
        self._new_ids: dict[str, dict[int, int]] = {name: {} for name in EXPORTED}
        self._waiting: list[dict[str, Any]] = []
        self._waiting_for = ""
        self._message_ids: list[int] = []
        self._sorted_ids: list[int] | None = None
        self._user_pins: set[int] = set()
        self._known_pins: set[int] = set()

    def take(self, kind: str, content: Any) -> None:
        """
        Insert one record.

        Raises:
            DamagedFileError: it is not a valid row, or refers to a later or missing one.
            ConflictError: a session or pin of that name exists.
        """
        if kind == "user":
            self._begin_user(content)
            return
        if kind not in {*EXPORTED, USER_EVENT} or self._owner_id is None or self._user is None:
            raise DamagedFileError(
                f"unexpected record {kind!r} in the export: nothing was imported"
            )
        row = self._read(_TABLES[kind], content)
        if kind == USER_EVENT:
            self._user.event(row)
            return
        if self._is_known_pin(kind, row, content):
            return
        self.counts[kind] += 1
        if kind != self._waiting_for or len(self._waiting) == _BATCH:
            self.finish()
        self._waiting_for = kind
        self._waiting.append(row)
        # The following rows need its id.
        if kind == "message":
            self._message_ids.append(content["id"])
            self._sorted_ids = None
        elif kind == "session":
            self._new_ids["message"].clear()
        if kind in {"session", "branch", "pin", "assembly"}:
            self._waiting.clear()
            table = _TABLES[kind]
            added = self._connection.execute(insert(table).returning(table.c.id), row)
            self._new_ids[kind][content["id"]] = added.scalar_one()
        if kind == "session":
            self.sessions.append((self._new_ids[kind][content["id"]], self._named))
        self._note_user_pin(kind, row, content)

    def end(self) -> None:
        """
        Flush pending rows, and verify the last user's pins against their chain.

        Raises:
            DamagedFileError: they do not match the chain.
        """
        self.finish()
        if self._user is not None and self._owner_id is not None:
            is_proven = self._user.settle(self._owner_id, is_declared=self.is_chained)
            if not is_proven:
                self.unproven.append(f"the pins of user {self._named.user!r}")
            self._user = None

    def finish(self) -> None:
        """Flush pending rows."""
        if not self._waiting:
            return
        table = _TABLES[self._waiting_for]
        if table.name == "message":
            adding = insert(table).returning(table.c.id, sort_by_parameter_order=True)
            added = self._connection.execute(adding, self._waiting).scalars()
            self._new_ids["message"].update(zip(self._message_ids, added, strict=True))
            self._message_ids = []
        else:
            self._connection.execute(insert(table), self._waiting)
        self._waiting = []

    def _note_user_pin(self, kind: str, row: dict[str, Any], content: dict[str, Any]) -> None:
        assert self._user is not None, "rows follow their user"
        if kind == "pin" and row["scope"] == PinScope.USER:
            pin_id = self._new_ids["pin"][content["id"]]
            self._user_pins.add(pin_id)
            self._user.pin(pin_id, row["key"])
        elif kind == "pin_version" and row["pin_id"] in self._user_pins:
            self._user.version(row, is_new=True)

    def _begin_user(self, content: Any) -> None:
        self.end()
        self._num_users += 1
        if self._scope is not None and self._num_users > 1:
            raise InvalidInputError("the export holds several users: import it without `user`")
        try:
            named = Scope(namespace=content["namespace"], user=content["user"])
        except (KeyError, TypeError, InvalidInputError) as error:
            raise DamagedFileError(f"the export names no user: {error}") from error
        self._named = named
        owner = self._scope or replace(named, namespace=self._namespace or named.namespace)
        self._owner_id = ensure_owner(self._connection, owner)
        self._user = UserImport(self._connection, content, named=named, written=owner)

    def _read(self, table: Table, content: Any) -> dict[str, Any]:
        """Validate a record column by column, and map its foreign keys to the new ids."""
        names = {column.name for column in table.columns}
        # An older export lacks newer columns, which are all nullable.
        needed = {column.name for column in table.columns if not column.nullable}
        if not isinstance(content, dict) or not needed <= set(content) <= names:
            raise DamagedFileError(
                f"the columns of a {table.name} differ from those of this agentmem"
            )
        row = {column.name: _value(column, content.get(column.name)) for column in table.columns}
        _refuse_unreadable(table.name, row)
        for column in table.columns:
            for reference in column.foreign_keys:
                row[column.name] = self._new_id(reference.column.table.name, row[column.name])
        if table.name == "pin":
            target = _TARGETS.get(row["scope"])
            if target is None or row[target] is None:
                raise DamagedFileError("a pin has no owner: no user, session or branch id")
            row["target_id"] = row[target]
        if table.name == "session":
            self._refuse_known_session(row["key"])
            _refuse_unknown_zone(row["timezone"])
        if table.name == "pin_version":
            row["after_message"] = self._newest_until(row["pin_id"], row["after_message"])
        row.pop("id", None)
        return row

    def _newest_until(self, pin_id: int, old: int | None) -> int | None:
        """
        Return the new id of the session's newest message up to the id *old*.

        None for pins of the user, which precede messages of several sessions.
        """
        if old is None or pin_id in self._user_pins:
            return None
        new_ids = self._new_ids["message"]
        if self._sorted_ids is None:
            self._sorted_ids = sorted(new_ids)
        index = bisect_right(self._sorted_ids, old)
        return new_ids[self._sorted_ids[index - 1]] if index else 0

    def _new_id(self, table: str, old: int | None) -> int | None:
        if table == "owner":
            return self._owner_id
        if old is None:
            return None
        if old not in self._new_ids[table]:
            raise DamagedFileError(f"a row refers to {table} {old}, which is not in the export")
        return self._new_ids[table][old]

    def _refuse_known_session(self, key: str) -> None:
        keys = (SessionRow.owner_id == self._owner_id, SessionRow.key == key)
        if self._connection.execute(select(SessionRow.id).where(*keys)).first():
            raise ConflictError(
                f"there is a session {key!r} already: delete it, or import for another user; "
                "nothing was imported"
            )

    def _is_known_pin(self, kind: str, row: dict[str, Any], content: dict[str, Any]) -> bool:
        """Return whether the row is of a user pin that is already stored, unchanged."""
        if kind == "pin" and row["scope"] == PinScope.USER:
            keys = (PinRow.scope, PinRow.target_id, PinRow.key)
            same = [column == row[column.name] for column in keys]
            found = self._connection.execute(select(PinRow.id).where(*same)).scalar_one_or_none()
            if found is not None:
                self._new_ids["pin"][content["id"]] = found
                self._known_pins.add(found)
                if self._user is not None:
                    self._user.pin(found, row["key"])
            return found is not None
        if kind == "pin_version" and row["pin_id"] in self._known_pins:
            self._refuse_other_text(row)
            if self._user is not None:
                self._user.version(row, is_new=False)
            return True
        return False

    def _refuse_other_text(self, row: dict[str, Any]) -> None:
        keys = (PinVersionRow.pin_id == row["pin_id"], PinVersionRow.version == row["version"])
        found = self._connection.execute(select(PinVersionRow.text).where(*keys)).one_or_none()
        if found is None or found.text != row["text"]:
            raise ConflictError(
                "the user has a pin of the same key with another history: nothing was imported"
            )


def _refuse_unreadable(kind: str, row: Mapping[str, Any]) -> None:
    """Decode a row as after storing, so that a corrupt one fails now, not later."""
    try:
        _read(kind, SimpleNamespace(**row))
    except (StoreError, *UNREADABLE) as error:
        raise DamagedFileError(f"a row of {kind} cannot be read: {error}") from error


def _value(column: Column[Any], value: Any) -> Any:
    """Convert a JSON value to the column's type."""
    if value is None and column.nullable:
        return None
    try:
        if isinstance(column.type, LargeBinary):
            return base64.b64decode(value, validate=True)
        if isinstance(column.type, UtcDateTime):
            return check_moment(datetime.fromisoformat(value))
        if isinstance(column.type, Text):
            return check_text(column.name, value)
    except (ValueError, TypeError, binascii.Error) as error:
        raise DamagedFileError(f"{column} cannot be {value!r:.50}: {error}") from error
    if not is_int(value) or abs(value) >= _INT_BOUND:
        raise DamagedFileError(f"{column} must be an integer, got {value!r:.50}")
    return value


def _read(kind: str, row: Any) -> None:
    """Decode the value of a row; raises for an invalid one."""
    match kind:
        case "session" if row.day is not None:
            date.fromisoformat(row.day)
        case "message":
            decode(row)
        case "branch":
            check_branch(row)
            to_branch_info(row)
        case "replacement":
            to_replacement(row)
        case "assembly":
            check_info(to_info(row))
        case "truncation":
            plain = {name: getattr(row, name) for name in _TABLES[kind].columns.keys()}  # noqa: SIM118 - names, not columns
            to_records(SimpleNamespace(branch_id=0, created_at=None, **plain))


def _refuse_unknown_zone(name: str | None) -> None:
    """Reject an unknown time zone; skipped on a machine without time zone data."""
    try:
        ZoneInfo("UTC" if name is None else name)
    except (KeyError, ValueError, OSError) as error:
        if available_timezones():
            raise DamagedFileError(
                f"a session has the time zone {name!r:.80}, which does not exist"
            ) from error
