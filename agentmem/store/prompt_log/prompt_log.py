"""The prompt log: layouts and truncation records."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select

from agentmem.errors import ConflictError, DamagedRowError, InvalidInputError
from agentmem.store.chain.log_chain import add_entry, entry_digest
from agentmem.store.database.database import Database
from agentmem.store.database.hashing import follow
from agentmem.store.database.schema import AnySelect, AssemblyRow, BranchRow, TruncationRow
from agentmem.store.prompt_log.row_codec import (
    encode_prompt,
    encode_records,
    is_whole,
    to_info,
    to_records,
)
from agentmem.store.prompt_log.summaries import (
    Sources,
    add_summaries,
    expect_sources,
    find_summaries,
    known_keys,
    summaries_of,
)
from agentmem.store.transcript.branches import find_branch, find_branches
from agentmem.types import (
    AssemblyId,
    AssemblyInfo,
    BranchId,
    Prompt,
    Scope,
    SessionId,
    Summary,
    TruncationRecord,
    check_text,
)

_LAST: Final[AnySelect] = (
    select(AssemblyRow.__table__)
    .where(
        AssemblyRow.branch_id == bindparam("branch"),
        AssemblyRow.context == bindparam("window"),
        AssemblyRow.reply == bindparam("reserve"),
        AssemblyRow.fingerprint == bindparam("counter"),
        AssemblyRow.head <= bindparam("up_to"),
    )
    .order_by(AssemblyRow.id.desc())
    .limit(1)
)
_LAST_ID: Final = _LAST.with_only_columns(AssemblyRow.id)
_NEWEST: Final[AnySelect] = (
    select(AssemblyRow.__table__)
    .where(AssemblyRow.branch_id == bindparam("branch"))
    .order_by(AssemblyRow.id.desc())
    .limit(1)
)
_OF_SESSION: Final = (
    select(AssemblyRow.__table__)
    .join(BranchRow, BranchRow.id == AssemblyRow.branch_id)
    .where(BranchRow.session_id == bindparam("session"))
    .order_by(AssemblyRow.id)
)
_OF_BRANCH: Final = _OF_SESSION.where(AssemblyRow.branch_id == bindparam("branch"))
_TRUNCATIONS: Final = (
    select(TruncationRow.__table__, AssemblyRow.branch_id, AssemblyRow.created_at)
    .join(AssemblyRow, AssemblyRow.id == TruncationRow.assembly_id)
    .join(BranchRow, BranchRow.id == AssemblyRow.branch_id)
    .where(BranchRow.session_id == bindparam("session"))
    .order_by(TruncationRow.id)
)
_TRUNCATIONS_OF_BRANCH: Final = _TRUNCATIONS.where(AssemblyRow.branch_id == bindparam("branch"))

_NOTHING: Final = Sources()
_ANY_HEAD: Final = 2**62


class Unchecked(Enum):
    """Sentinel: a prompt may follow any other; None means that it must be the first."""

    UNCHECKED = auto()


UNCHECKED: Final = Unchecked.UNCHECKED


class PromptLog:
    """Prompts without their texts, and truncation records. Append-only."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def record(
        self,
        scope: Scope,
        prompt: Prompt,
        *,
        after: AssemblyId | Unchecked | None = UNCHECKED,
        sources: Sources = _NOTHING,
    ) -> Prompt:
        """
        Log a prompt, its truncation records and its new summaries, atomically.

        Return the prompt with its id, and its records likewise.

        Compare-and-set: with *after*, the log must still end with that prompt of the same branch,
        budget and counter, or be empty for None; else the assembly is stale.
        *sources* are the inputs of its new summaries, which must still exist; its summaries among
        them are in the log already.

        It is synced to disk with the next message (see `Database.write`): a power cut may lose
        the entry of a prompt, but not one whose answer was stored.

        Raises:
            SessionNotFoundError: no such branch of this scope.
            InvalidInputError: a truncation record is of another branch than the prompt.
            ConflictError: the log has changed since *after*, or one of *sources* was deleted;
                nothing was written.
        """
        check_text("fingerprint", prompt.fingerprint)
        if any(record.branch_id != prompt.branch_id for record in prompt.truncations):
            raise InvalidInputError("a truncation record and its prompt are of different branches")
        now = self._clock()
        columns = encode_prompt(prompt, now)
        left_out = encode_records(prompt.truncations)
        content = entry_digest(columns, left_out)
        made = [summary for summary in prompt.summaries if summary not in sources.summaries]

        def work(connection: Connection) -> AssemblyId:
            branch = find_branch(connection, scope, prompt.branch_id, lock=True)
            if not isinstance(after, Unchecked):
                _expect_last(connection, prompt, after)
            if made:
                expect_sources(connection, branch, sources, head=prompt.head)
                add_summaries(connection, prompt.branch_id, made, now)
            entry = {**columns, "link": follow(branch.log_chain, content)}
            return AssemblyId(add_entry(connection, entry, left_out))

        return _numbered(prompt, self._database.write(work, durable=False), now)

    def last(  # noqa: PLR0913 - a key of four parts
        self,
        scope: Scope,
        branch_id: BranchId,
        *,
        context: int,
        reply: int,
        fingerprint: str,
        up_to: int | None = None,
    ) -> AssemblyInfo | None:
        """
        Return the newest prompt of a branch under that budget and counter; None without one.

        A corrupt one is skipped: the window continues from the previous one. With *up_to*, the
        newest one that was assembled when the branch had at most that many messages.

        Raises:
            SessionNotFoundError: no such branch of this scope.
        """
        keys = {
            "window": context,
            "reserve": reply,
            "counter": fingerprint,
            "up_to": _ANY_HEAD if up_to is None else up_to,
        }

        def work(connection: Connection) -> AssemblyInfo | None:
            find_branch(connection, scope, branch_id)
            return _newest_whole(connection, _LAST, {"branch": branch_id, **keys})

        return self._database.read(work)

    def newest(self, scope: Scope, branch_id: BranchId) -> AssemblyInfo | None:
        """
        Return the newest prompt of a branch under any budget; None without one.

        Raises:
            SessionNotFoundError: no such branch of this scope.
        """

        def work(connection: Connection) -> AssemblyInfo | None:
            find_branch(connection, scope, branch_id)
            return _newest_whole(connection, _NEWEST, {"branch": branch_id})

        return self._database.read(work)

    def summaries(
        self, scope: Scope, branch_id: BranchId, keys: Sequence[str] | None = None
    ) -> tuple[Summary, ...]:
        """
        Return the summaries with *keys*, in that order, or without keys all of the branch.

        A key may be of a branch that this one inherits from; unknown keys are omitted.

        Raises:
            SessionNotFoundError: no such branch of this scope.
        """

        def work(connection: Connection) -> tuple[Summary, ...]:
            branch = find_branch(connection, scope, branch_id)
            if keys is None:
                return summaries_of(connection, branch_id)
            found = find_summaries(connection, branch.session_id, keys)
            return tuple(found[key] for key in keys if key in found)

        return self._database.read(work)

    def known_summaries(
        self, scope: Scope, branch_id: BranchId, keys: Sequence[str]
    ) -> frozenset[str]:
        """
        Return the *keys* of existing summaries, with deleted text or not.

        Raises:
            SessionNotFoundError: no such branch of this scope.
        """

        def work(connection: Connection) -> set[str]:
            branch = find_branch(connection, scope, branch_id)
            return known_keys(connection, branch.session_id, keys)

        return frozenset(self._database.read(work))

    def assemblies(
        self, scope: Scope, session_id: SessionId, *, branch_id: BranchId | None = None
    ) -> tuple[AssemblyInfo, ...]:
        """
        Return all prompts of a session, or of one of its branches, oldest first.

        Raises:
            SessionNotFoundError: no such session of this scope.
        """
        statement = _OF_SESSION if branch_id is None else _OF_BRANCH
        keys = {"session": session_id} | ({} if branch_id is None else {"branch": branch_id})

        def work(connection: Connection) -> tuple[AssemblyInfo, ...]:
            find_branches(connection, scope, session_id)
            return tuple(map(to_info, connection.execute(statement, keys)))

        return self._database.read(work)

    def truncations(
        self, scope: Scope, session_id: SessionId, *, branch_id: BranchId | None = None
    ) -> tuple[TruncationRecord, ...]:
        """
        Return the truncation records of a session, or of one of its branches, oldest first.

        Raises:
            SessionNotFoundError: no such session of this scope.
        """
        statement = _TRUNCATIONS if branch_id is None else _TRUNCATIONS_OF_BRANCH
        keys = {"session": session_id} | ({} if branch_id is None else {"branch": branch_id})

        def work(connection: Connection) -> tuple[TruncationRecord, ...]:
            find_branches(connection, scope, session_id)
            rows = connection.execute(statement, keys)
            return tuple(record for row in rows for record in to_records(row))

        records = self._database.read(work)
        return tuple(sorted(records, key=lambda record: (record.assembly_id or 0, record.first)))


def _numbered(prompt: Prompt, assembly_id: AssemblyId, now: datetime) -> Prompt:
    """Return *prompt* and its records with their id and time in the log."""
    records = tuple(
        replace(record, assembly_id=assembly_id, created_at=now) for record in prompt.truncations
    )
    return replace(prompt, assembly_id=assembly_id, truncations=records)


def _newest_whole(
    connection: Connection, statement: AnySelect, keys: dict[str, Any]
) -> AssemblyInfo | None:
    """Read the first readable row of *statement*."""
    for limit in (1, None):
        rows = connection.execute(statement.limit(limit) if limit is None else statement, keys)
        for row in rows:
            with suppress(DamagedRowError):
                info = to_info(row)
                if is_whole(info):
                    return info
    return None


def _expect_last(connection: Connection, prompt: Prompt, after: AssemblyId | None) -> None:
    keys = {
        "branch": prompt.branch_id,
        "window": prompt.context,
        "reserve": prompt.reply,
        "counter": prompt.fingerprint,
        "up_to": _ANY_HEAD,
    }
    found = connection.execute(_LAST_ID, keys).scalar_one_or_none()
    if found != after:
        # Corrupt ones are skipped, as by readers of the log.
        whole = _newest_whole(connection, _LAST, keys)
        found = None if whole is None else whole.id
    if found != after:
        raise ConflictError(
            f"the log of branch {prompt.branch_id} ends with prompt {found}, not {after}: "
            "another process assembled it too; assemble again"
        )
