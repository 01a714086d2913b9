"""
Export and import as JSON Lines: a head, rows in an order in which they can be inserted, an end.

The end holds the number of lines and a SHA-256 over all of them, so a file that was cut or altered
is refused before anything is written. Row numbers are those of the database that wrote the file;
importing gives new ones.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import Connection, Table, select

from agentmem.errors import DamagedFileError, InvalidInputError, SessionNotFoundError
from agentmem.store.chaining import chain_session
from agentmem.store.codec import to_json
from agentmem.store.damage import check_row
from agentmem.store.engine import Database
from agentmem.store.rows import EXPORTED, Loader, exported, rows_of_session, rows_of_user
from agentmem.store.schema import BranchRow, OwnerRow, SessionRow
from agentmem.store.scoping import not_found, owner_digest
from agentmem.store.verifying import verify_session
from agentmem.store.whole_file import whole_file
from agentmem.types import Scope

FORMAT: Final = 1
_USER: Final = b'{"user"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """How much an export or an import moved."""

    sessions: int
    messages: int


class Transfer:
    """Writes sessions to a file and reads them from one, whole or not at all."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def export(
        self,
        path: Path,
        *,
        scope: Scope | None = None,
        key: str | None = None,
        namespace: str | None = None,
    ) -> Transferred:
        """
        Write one session, all of a user, or with no *scope* everything of *namespace*, or of all.

        The file appears under its name when it is complete, and only its owner may read it. A
        user's own pins go with each export, since they are part of the prompts.

        Raises:
            SessionNotFoundError: the scope has no session of that *key*, or nothing at all.
            InvalidInputError: a *key* without a *scope*, or there is something at *path* that is
                no file, or the file cannot be written.
        """
        if key is not None and scope is None:
            raise InvalidInputError("to export one session, say whose it is")
        users = self._database.read(
            lambda connection: _find_sessions(connection, scope, key, namespace)
        )
        try:
            with whole_file(path) as file:
                writer = _Writer(file)
                writer.write("agentmem-export", {"format": FORMAT})
                for (owner_id, owner_namespace, user), session_ids in users.items():
                    writer.write("user", {"namespace": owner_namespace, "user": user})
                    self._copy(writer, partial(rows_of_user, owner_id))
                    for session_id in session_ids:
                        self._copy(writer, partial(rows_of_session, session_id))
                writer.end()
        except OSError as error:
            raise InvalidInputError(
                f"cannot write the export {path}: {error.strerror or error}"
            ) from error
        return Transferred(sessions=writer.counts["session"], messages=writer.counts["message"])

    def load(
        self, path: Path, *, scope: Scope | None = None, namespace: str | None = None
    ) -> Transferred:
        """
        Import what `export` wrote, all or nothing, for the same users or for *scope*.

        With a *namespace*, nothing is written in any other: a file of one namespace goes into it,
        and of a file of several only what is of it.

        Raises:
            DamagedFileError: the file was cut, altered, or is no export.
            ConflictError: a session with the same key is there already, or a pin of the user with
                the same key has another text.
            InvalidInputError: a *scope* is given and the file is of several users, or the file is
                of several namespaces and none of them is *namespace*, or it cannot be read.
        """
        try:
            with path.open("rb") as file:
                found = _verify(file, path)
                if namespace is not None and len(found) > 1 and namespace not in found:
                    raise InvalidInputError(
                        f"{path} is of the namespaces {sorted(found)}, and this one is "
                        f"{namespace!r}: open the memory of one of them"
                    )

                def work(connection: Connection) -> Transferred:
                    file.seek(0)
                    loader = Loader(connection, scope, namespace)
                    for kind, content in _bound(_records(file, path), namespace, found):
                        loader.take(kind, content)
                    loader.finish()
                    for session_id, named in loader.sessions:
                        written = scope or replace(named, namespace=namespace or named.namespace)
                        _hold_to_chain(connection, session_id, named, path, rename=written)
                    return Transferred(
                        sessions=loader.counts["session"], messages=loader.counts["message"]
                    )

                return self._database.write(work)
        except (OSError, ValueError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(f"cannot read the export {str(path)!r}: {error}") from error

    def _copy(
        self,
        writer: "_Writer",
        rows: Callable[[Connection], Iterator[tuple[Table, Any]]],
    ) -> None:
        """Write rows as they were at one moment; a read that is run again starts over."""
        start = writer.state()

        def work(connection: Connection) -> None:
            writer.go_back(start)
            for table, row in rows(connection.execution_options(yield_per=500)):
                writer.write(table.name, exported(connection, table, row))

        self._database.read(work)


class _Writer:
    """Writes lines and keeps account of them."""

    def __init__(self, file: IO[bytes]) -> None:
        self.counts = dict.fromkeys((*EXPORTED, "user", "agentmem-export"), 0)
        self._file = file
        self._hasher = hashlib.sha256()

    def write(self, kind: str, content: object) -> None:
        line = to_json({kind: content}).encode() + b"\n"
        self._hasher.update(line)
        self._file.write(line)
        self.counts[kind] += 1

    def end(self) -> None:
        facts = {"lines": sum(self.counts.values()), "sha256": self._hasher.hexdigest()}
        self._file.write(to_json({"end": facts}).encode() + b"\n")

    def state(self) -> tuple[int, Any, dict[str, int]]:
        return self._file.tell(), self._hasher.copy(), dict(self.counts)

    def go_back(self, state: tuple[int, Any, dict[str, int]]) -> None:
        offset, hasher, counts = state
        self._file.seek(offset)
        self._file.truncate()
        self._hasher, self.counts = hasher.copy(), dict(counts)


def _find_sessions(
    connection: Connection, scope: Scope | None, key: str | None, namespace: str | None
) -> dict[tuple[int, str, str], list[int]]:
    """
    Give the sessions to export by their users.

    Raises:
        SessionNotFoundError: there is nothing of that scope, or no session of that key.
        DamagedRowError: the name of a user cannot be read.
    """
    statement = (
        select(OwnerRow.id, OwnerRow.namespace, OwnerRow.user, SessionRow.id.label("session"))
        .join(SessionRow, SessionRow.owner_id == OwnerRow.id, isouter=key is None)
        .order_by(OwnerRow.id, SessionRow.id)
    )
    if namespace is not None:
        statement = statement.where(OwnerRow.namespace == namespace)
    if scope is not None:
        statement = statement.where(OwnerRow.digest == owner_digest(scope))
    if key is not None:
        statement = statement.where(SessionRow.key == key)
    users: dict[tuple[int, str, str], list[int]] = {}
    for row in connection.execute(statement):
        check_row("owner", row)
        found = users.setdefault((row.id, row.namespace, row.user), [])
        if row.session is not None:
            found.append(row.session)
    if scope is not None and not _is_anything(connection, users):
        if key is not None:
            raise not_found("session", key, scope)
        raise SessionNotFoundError(
            f"there is nothing of user {scope.user!r} in namespace {scope.namespace!r} to export"
        )
    return users


def _is_anything(connection: Connection, users: dict[tuple[int, str, str], list[int]]) -> bool:
    """Tell whether there is a session, or a pin that a user has without one."""
    return any(
        session_ids or next(rows_of_user(owner_id, connection), None)
        for (owner_id, _, _), session_ids in users.items()
    )


def _hold_to_chain(
    connection: Connection, session_id: int, named: Scope, path: Path, *, rename: Scope | None
) -> None:
    """
    Compare what was imported with the chain that came with it, or chain it if none did.

    Raises:
        DamagedFileError: something is not what was stored where the export was made.
    """
    chains = select(BranchRow.chain).where(BranchRow.session_id == session_id)
    is_chained = any(connection.execute(chains).scalars())
    if is_chained:
        whose = {"namespace": named.namespace, "user": named.user}
        found = verify_session(connection, session_id, integrity=True, named=whose).found
        if found:
            first = found[0]
            where = "" if first.position is None else f"message {first.position} "
            raise DamagedFileError(
                f"{path} does not follow its hash chain in {len(found)} places, the first: "
                f"{where}{first.problem}; nothing was imported"
            )
    if not is_chained or rename not in {None, named}:
        chain_session(connection, session_id)


def _verify(file: IO[bytes], path: Path) -> set[str]:
    """
    Read the whole file, compare it with what its end says, and return the namespaces in it.

    Raises:
        DamagedFileError: it is not what was written.
    """
    hasher, lines, last = hashlib.sha256(), 0, b""
    namespaces: set[str] = set()
    for line in file:
        if lines:
            hasher.update(last)
        last = line
        lines += 1
        if line.startswith(_USER):
            content = _parse(line, path).get("user")
            if isinstance(content, dict) and isinstance(content.get("namespace"), str):
                namespaces.add(content["namespace"])
    expected = {"end": {"lines": lines - 1, "sha256": hasher.hexdigest()}}
    if not last.endswith(b"\n") or _parse(last, path) != expected:
        raise DamagedFileError(
            f"{path} is not what was exported: it was cut or altered, or is no export; "
            "nothing was imported"
        )
    return namespaces


def _bound(
    records: Iterator[tuple[str, Any]], namespace: str | None, found: set[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the *records* that are to be written in *namespace*, if there is one."""
    is_wanted = True
    for kind, content in records:
        if kind == "user" and namespace is not None and isinstance(content, dict):
            is_wanted = len(found) < 2 or content.get("namespace") == namespace  # noqa: PLR2004
        if is_wanted:
            yield kind, content


def _records(file: IO[bytes], path: Path) -> Iterator[tuple[str, Any]]:
    """Give what stands between head and end, once the head is one that we can read."""
    head = _parse(file.readline(), path).get("agentmem-export")
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise DamagedFileError(
            f"{path} is no export of format {FORMAT}, the one that this agentmem reads"
        )
    for line in file:
        record = _parse(line, path)
        if len(record) != 1:
            raise DamagedFileError(f"{path} has a line that is no record: nothing was imported")
        (pair,) = record.items()
        if pair[0] != "end":
            yield pair


def _parse(line: bytes, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(
            f"{path} is not what was exported: a line is no JSON ({error}); nothing was imported"
        ) from error
    return value if isinstance(value, dict) else {}
