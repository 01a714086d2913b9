"""
Export and import as JSON Lines: a header, rows in insertion order, a trailer.

The trailer has the number of lines and a SHA-256 over all of them, so a corrupt file is rejected
before anything is written. Ids are those of the exporting database; an import assigns new ones.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import Connection, Table, bindparam, select

from agentmem.errors import DamagedFileError, InvalidInputError, SessionNotFoundError
from agentmem.machine.atomic_file import atomic_write
from agentmem.store.database.damage import check_row
from agentmem.store.database.database import Database
from agentmem.store.database.schema import OwnerRow, SessionRow
from agentmem.store.database.tenancy import not_found, owner_digest
from agentmem.store.integrity.heads import check_key
from agentmem.store.transcript.message_codec import to_json
from agentmem.store.transfer.import_proof import CHAIN, hold_to_chain
from agentmem.store.transfer.records import (
    EXPORTED,
    USER_EVENT,
    Loader,
    exported,
    rows_of_session,
    rows_of_user,
)
from agentmem.types import Scope
from agentmem.types.fields import Checked

FORMAT: Final = 1
_USER: Final = b'{"user"'
_CHAIN: Final = select(OwnerRow.chain).where(OwnerRow.id == bindparam("owner"))
_KEY: Final = select(SessionRow.key).where(SessionRow.id == bindparam("session"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred(Checked):
    """The size of an export or an import."""

    sessions: int
    messages: int
    unproven: tuple[str, ...] = ()
    """Imported data of an older version without a hash chain, in words."""


class Transfer:
    """Exports sessions to a file and imports them, atomically."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def export(
        self,
        path: Path,
        *,
        scope: Scope | None = None,
        key: str | None = None,
        namespace: str | None = None,
        hmac_key: str | None = None,
    ) -> Transferred:
        """
        Export one session, all of a user, or without *scope* all of *namespace*, or of all.

        The file is written atomically, and only its owner may read it. A user's pins are in each
        export, since they are part of the prompts. With an *hmac_key* the trailer has an HMAC of
        the file, which cannot be forged without the key.

        Raises:
            SessionNotFoundError: the scope has no session of that *key*, or no data.
            InvalidInputError: a *key* without a *scope*, *path* is not a regular file, the file
                cannot be written, or *hmac_key* is empty.
        """
        check_key(hmac_key)
        if key is not None and scope is None:
            raise InvalidInputError("to export one session, name its user")
        users = self._database.read(
            lambda connection: _find_sessions(connection, scope, key, namespace)
        )
        try:
            with atomic_write(path) as file:
                writer = _Writer(file)
                writer.write("agentmem-export", {"format": FORMAT, "chain": CHAIN})
                for (owner_id, owner_namespace, user), session_ids in users.items():
                    whose = {"namespace": owner_namespace, "user": user}
                    self._copy(writer, partial(rows_of_user, owner_id), (owner_id, whose))
                    for session_id in session_ids:
                        self._copy(writer, partial(rows_of_session, session_id))
                writer.end(hmac_key)
        except OSError as error:
            raise InvalidInputError(
                f"cannot write the export {path}: {error.strerror or error}"
            ) from error
        return Transferred(sessions=writer.counts["session"], messages=writer.counts["message"])

    def load(
        self,
        path: Path,
        *,
        scope: Scope | None = None,
        namespace: str | None = None,
        hmac_key: str | None = None,
    ) -> Transferred:
        """
        Import a file of `export`, all or nothing, for the same users or for *scope*.

        With a *namespace*, only that one is written: a file of one namespace is imported into it,
        and of a file of several only its part. With an *hmac_key* the file must have been exported
        with the same one.

        Raises:
            DamagedFileError: the file is corrupt, or is not an export; its hash chain is broken; or
                it was not exported with *hmac_key*.
            ConflictError: a session with the same key exists, or a pin of the user with the same
                key has another text.
            InvalidInputError: a *scope* is given and the file has several users, or the file has
                several namespaces and none is *namespace*, or it cannot be read.
        """
        check_key(hmac_key)
        try:
            with path.open("rb") as file:
                found, is_chained = _verify(file, path, hmac_key), _is_chained(file, path)
                if namespace is not None and len(found) > 1 and namespace not in found:
                    raise InvalidInputError(
                        f"{path} is of the namespaces {sorted(found)}, and this one is "
                        f"{namespace!r}: open the memory of one of them"
                    )

                def work(connection: Connection) -> Transferred:
                    file.seek(0)
                    loader = Loader(connection, scope, namespace, is_chained=is_chained)
                    for kind, content in _bound(_records(file, path), namespace, found):
                        loader.take(kind, content)
                    loader.end()
                    return _proven(connection, loader, path, scope, namespace)

                return self._database.write(work)
        except (OSError, ValueError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(f"cannot read the export {str(path)!r}: {error}") from error

    def _copy(
        self,
        writer: "_Writer",
        rows: Callable[[Connection], Iterator[tuple[Table, Any]]],
        user: tuple[int, dict[str, Any]] | None = None,
    ) -> None:
        """Write the rows of one snapshot; a retried read starts over."""
        start = writer.state()

        def work(connection: Connection) -> None:
            writer.go_back(start)
            if user is not None:
                chain = connection.execute(_CHAIN, {"owner": user[0]}).scalar_one_or_none()
                text = base64.b64encode(chain).decode() if isinstance(chain, bytes) else None
                writer.write("user", {**user[1], "chain": text})
            for table, row in rows(connection.execution_options(yield_per=500)):
                writer.write(table.name, exported(connection, table, row))

        self._database.read(work)


class _Writer:
    """Writes lines, counts and hashes them."""

    def __init__(self, file: IO[bytes]) -> None:
        self.counts = dict.fromkeys((*EXPORTED, USER_EVENT, "user", "agentmem-export"), 0)
        self._file = file
        self._hasher = hashlib.sha256()

    def write(self, kind: str, content: object) -> None:
        line = to_json({kind: content}).encode() + b"\n"
        self._hasher.update(line)
        self._file.write(line)
        self.counts[kind] += 1

    def end(self, hmac_key: str | None) -> None:
        facts = _facts(sum(self.counts.values()), self._hasher.hexdigest(), hmac_key)
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
    Return the sessions to export, by user.

    Raises:
        SessionNotFoundError: the scope has no data, or no session of that key.
        DamagedRowError: the name of a user is corrupt.
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
    """Return whether there are sessions, or pins of users without sessions."""
    return any(
        session_ids or next(rows_of_user(owner_id, connection), None)
        for (owner_id, _, _), session_ids in users.items()
    )


def _facts(lines: int, checksum: str, hmac_key: str | None) -> dict[str, Any]:
    """Return the content of the trailer."""
    facts: dict[str, Any] = {"lines": lines, "sha256": checksum}
    if hmac_key is not None:
        said = f"agentmem export {lines} {checksum}".encode()
        facts["hmac"] = hmac.new(hmac_key.encode(), said, hashlib.sha256).hexdigest()
    return facts


def _proven(
    connection: Connection, loader: Loader, path: Path, scope: Scope | None, namespace: str | None
) -> Transferred:
    """
    Verify imported data against the hash chain in the file.

    Raises:
        DamagedFileError: it does not match.
    """
    unproven = list(loader.unproven)
    for session_id, named in loader.sessions:
        written = scope or replace(named, namespace=namespace or named.namespace)
        covered = hold_to_chain(
            connection,
            session_id,
            path,
            named=named,
            written=written,
            is_declared=loader.is_chained,
        )
        if covered is not None:
            key = connection.execute(_KEY, {"session": session_id}).scalar_one()
            unproven.append(f"session {key!r}: its chain covers {covered}")
    return Transferred(
        sessions=loader.counts["session"],
        messages=loader.counts["message"],
        unproven=tuple(unproven),
    )


def _is_chained(file: IO[bytes], path: Path) -> bool:
    """
    Whether an export declares a complete hash chain; those of older versions do not.

    Raises:
        DamagedFileError: it declares a chain of another version.
    """
    file.seek(0)
    head = _parse(file.readline(), path).get("agentmem-export")
    chain = head.get("chain") if isinstance(head, dict) else None
    if chain is not None and chain != CHAIN:
        raise DamagedFileError(
            f"{path} has a hash chain of version {chain!r:.20}, and this agentmem reads {CHAIN}: "
            "nothing was imported"
        )
    return chain is not None


def _verify(file: IO[bytes], path: Path, hmac_key: str | None) -> set[str]:
    """
    Read the whole file, verify its trailer, and return its namespaces.

    Raises:
        DamagedFileError: it is corrupt.
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
    found = _parse(last, path)
    given = found["end"].pop("hmac", None) if isinstance(found.get("end"), dict) else None
    expected = _facts(lines - 1, hasher.hexdigest(), hmac_key)
    made = expected.pop("hmac", None)
    if not last.endswith(b"\n") or found != {"end": expected}:
        raise DamagedFileError(
            f"{path} is corrupt: the checksum does not match, or it is not an export; "
            "nothing was imported"
        )
    if made is not None and not (isinstance(given, str) and hmac.compare_digest(given, made)):
        how = "without a key" if given is None else "with another key, or was altered"
        raise DamagedFileError(
            f"{path} was exported {how}: export it again with this key, or import it without one "
            "if you trust it; nothing was imported"
        )
    return namespaces


def _bound(
    records: Iterator[tuple[str, Any]], namespace: str | None, found: set[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the *records* to write in *namespace*, if given."""
    is_wanted = True
    for kind, content in records:
        if kind == "user" and namespace is not None and isinstance(content, dict):
            is_wanted = len(found) < 2 or content.get("namespace") == namespace  # noqa: PLR2004
        if is_wanted:
            yield kind, content


def _records(file: IO[bytes], path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the records between header and trailer, after validating the header."""
    head = _parse(file.readline(), path).get("agentmem-export")
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise DamagedFileError(
            f"{path} is not an export of format {FORMAT}, the one that this agentmem reads"
        )
    for line in file:
        record = _parse(line, path)
        if len(record) != 1:
            raise DamagedFileError(f"{path} has a line that is not a record: nothing was imported")
        (pair,) = record.items()
        if pair[0] != "end":
            yield pair


def _parse(line: bytes, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(
            f"{path} is corrupt: a line is not JSON ({error}); nothing was imported"
        ) from error
    return value if isinstance(value, dict) else {}
