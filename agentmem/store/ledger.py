"""The log of prompts: what each one held, and what it left out."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, select

from agentmem.errors import InvalidInputError
from agentmem.store.branches import find_branch, find_branches
from agentmem.store.codec import to_json
from agentmem.store.engine import Database
from agentmem.store.schema import AnyRow, AssemblyRow, BranchRow, TruncationRow
from agentmem.store.summaries import add_summaries, find_summaries, summaries_of
from agentmem.types import (
    AssemblyId,
    AssemblyInfo,
    BranchId,
    Form,
    Prompt,
    Rule,
    Scope,
    SessionId,
    Span,
    Summary,
    Tier,
    TruncationRecord,
    check_text,
    freeze,
)

_LAST: Final = (
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
_NEWEST: Final = (
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
_TRUNCATIONS: Final = (
    select(TruncationRow.__table__, AssemblyRow.branch_id, AssemblyRow.created_at)
    .join(AssemblyRow, AssemblyRow.id == TruncationRow.assembly_id)
    .join(BranchRow, BranchRow.id == AssemblyRow.branch_id)
    .where(BranchRow.session_id == bindparam("session"))
    .order_by(TruncationRow.id)
)
_TRUNCATIONS_OF_BRANCH: Final = _TRUNCATIONS.where(AssemblyRow.branch_id == bindparam("branch"))

_ANY_HEAD: Final = 2**62
_MIN_CELLS: Final = 3
_USUAL_CELLS: Final = (Form.FULL, None, None)


class Ledger:
    """Prompts without their texts, and truncation records. Only ever added to."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def record(self, scope: Scope, prompt: Prompt) -> Prompt:
        """
        Log a prompt, what it left out and its new summaries, all or nothing.

        The prompt comes back with its number, and so do its records.

        Raises:
            SessionNotFoundError: no such branch of this scope.
            InvalidInputError: a truncation record is of another branch than the prompt.
        """
        check_text("fingerprint", prompt.fingerprint)
        if any(record.branch_id != prompt.branch_id for record in prompt.truncations):
            raise InvalidInputError("a truncation record is of another branch than its prompt")
        now = self._clock()
        columns = _encode(prompt, now)

        def work(connection: Connection) -> AssemblyId:
            find_branch(connection, scope, prompt.branch_id)
            add_summaries(connection, prompt.branch_id, prompt.summaries, now)
            added = connection.execute(insert(AssemblyRow).returning(AssemblyRow.id), columns)
            assembly_id = added.scalar_one()
            rows = [_encode_record(record, assembly_id) for record in prompt.truncations]
            if rows:
                connection.execute(insert(TruncationRow), rows)
            return AssemblyId(assembly_id)

        assembly_id = self._database.write(work)
        records = tuple(
            replace(record, assembly_id=assembly_id, created_at=now)
            for record in prompt.truncations
        )
        return replace(prompt, assembly_id=assembly_id, truncations=records)

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
        Give the newest prompt of a branch under that budget and counter, None if there is none.

        With *up_to*, the newest one that was assembled when the branch had no more messages.

        Raises:
            SessionNotFoundError: no such branch of this scope.
        """
        keys = {
            "window": context,
            "reserve": reply,
            "counter": fingerprint,
            "up_to": _ANY_HEAD if up_to is None else up_to,
        }

        def work(connection: Connection) -> AnyRow | None:
            find_branch(connection, scope, branch_id)
            return connection.execute(_LAST, {"branch": branch_id, **keys}).one_or_none()

        row = self._database.read(work)
        return None if row is None else _to_info(row)

    def newest(self, scope: Scope, branch_id: BranchId) -> AssemblyInfo | None:
        """
        Give the newest prompt of a branch under any budget, None if there is none.

        Raises:
            SessionNotFoundError: no such branch of this scope.
        """

        def work(connection: Connection) -> AnyRow | None:
            find_branch(connection, scope, branch_id)
            return connection.execute(_NEWEST, {"branch": branch_id}).one_or_none()

        row = self._database.read(work)
        return None if row is None else _to_info(row)

    def summaries(
        self, scope: Scope, branch_id: BranchId, keys: Sequence[str] | None = None
    ) -> tuple[Summary, ...]:
        """
        Give the summaries with *keys* in that order, or without keys all that the branch made.

        A key may be of a branch that this one inherits from; one that is not there is left out.

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

    def assemblies(self, scope: Scope, session_id: SessionId) -> tuple[AssemblyInfo, ...]:
        """
        Give all prompts of a session, oldest first.

        Raises:
            SessionNotFoundError: no such session of this scope.
        """

        def work(connection: Connection) -> Sequence[AnyRow]:
            find_branches(connection, scope, session_id)
            return connection.execute(_OF_SESSION, {"session": session_id}).all()

        return tuple(_to_info(row) for row in self._database.read(work))

    def truncations(
        self, scope: Scope, session_id: SessionId, *, branch_id: BranchId | None = None
    ) -> tuple[TruncationRecord, ...]:
        """
        Give what prompts of a session, or of one of its branches, left out, oldest first.

        Raises:
            SessionNotFoundError: no such session of this scope.
        """
        statement = _TRUNCATIONS if branch_id is None else _TRUNCATIONS_OF_BRANCH
        keys = {"session": session_id} | ({} if branch_id is None else {"branch": branch_id})

        def work(connection: Connection) -> Sequence[AnyRow]:
            find_branches(connection, scope, session_id)
            return connection.execute(statement, keys).all()

        return tuple(_to_record(row) for row in self._database.read(work))


def _encode(prompt: Prompt, now: datetime) -> dict[str, Any]:
    return {
        "branch_id": prompt.branch_id,
        "head": prompt.head,
        "tokens_by_tier": to_json({k.value: v for k, v in prompt.tokens_by_tier.items()}),
        "layout": to_json([_encode_span(span) for span in prompt.layout]),
        "prompt_hash": prompt.prompt_hash,
        "pins": to_json(prompt.pins),
        "context": prompt.context,
        "reply": prompt.reply,
        "fingerprint": prompt.fingerprint,
        "created_at": now,
    }


def _encode_span(span: Span) -> list[Any]:
    """Write a span; what is as usual for most is left off its end, since a layout is a row."""
    cells = [span.first, span.last, span.tier, span.form, span.kept, span.source]
    while len(cells) > _MIN_CELLS and cells[-1] == _USUAL_CELLS[len(cells) - 1 - _MIN_CELLS]:
        cells.pop()
    return cells


def _to_span(cells: Sequence[Any]) -> Span:
    filled: list[Any] = [*cells, *_USUAL_CELLS[len(cells) - _MIN_CELLS :]]
    first, last, tier, form, kept, source = filled
    return Span(
        first=first,
        last=last,
        tier=None if tier is None else Tier(tier),
        form=Form(form),
        kept=kept,
        source=source,
    )


def _encode_record(record: TruncationRecord, assembly_id: int) -> dict[str, Any]:
    return {
        "assembly_id": assembly_id,
        "first": record.first,
        "last": record.last,
        "tier": record.tier.value,
        "rule": record.rule.value,
        "num_tokens": record.num_tokens,
        "room": record.room,
        "destination": check_text("destination", record.destination),
    }


def _to_info(row: AnyRow) -> AssemblyInfo:
    tokens = {Tier(name): number for name, number in json.loads(row.tokens_by_tier).items()}
    return AssemblyInfo(
        id=AssemblyId(row.id),
        branch_id=BranchId(row.branch_id),
        head=row.head,
        tokens_by_tier=freeze(tokens),
        layout=tuple(map(_to_span, json.loads(row.layout))),
        prompt_hash=row.prompt_hash,
        pins=tuple((key, version) for key, version in json.loads(row.pins)),
        context=row.context,
        reply=row.reply,
        fingerprint=row.fingerprint,
        created_at=row.created_at,
    )


def _to_record(row: AnyRow) -> TruncationRecord:
    return TruncationRecord(
        branch_id=BranchId(row.branch_id),
        first=row.first,
        last=row.last,
        tier=Tier(row.tier),
        rule=Rule(row.rule),
        num_tokens=row.num_tokens,
        room=row.room,
        destination=row.destination,
        assembly_id=AssemblyId(row.assembly_id),
        created_at=row.created_at,
    )
