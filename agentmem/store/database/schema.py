"""
The tables, as SQLAlchemy mappings. Rows never leave this folder: callers get values.

A word that may grow (role, state, tier) is text and not a database enum, so that a new one needs
no migration. JSON is text too: JSONB refuses some escapes and reorders keys.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    Select,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

AnyRow: TypeAlias = Row[*tuple[Any, ...]]
AnySelect: TypeAlias = Select[*tuple[Any, ...]]
# SQLite numbers rows by itself only in a column of the type INTEGER.
BigInt = BigInteger().with_variant(Integer, "sqlite")


class Unreadable:
    """What stands in a column and is not a value of its type: a row with one is damaged."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, always aware and in UTC on our side. SQLite keeps it without a zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        assert value.tzinfo is not None, "a naive datetime reached the store"
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Read a moment; one that cannot be read fails by itself, and not all rows beside it."""
        read = super().result_processor(dialect, coltype)

        def process(value: Any) -> Any:
            try:
                return value if read is None else read(value)
            except (ValueError, TypeError, OverflowError, AttributeError):
                return Unreadable(value)

        return process


class Base(DeclarativeBase):
    """Names constraints alike on every database, so that a migration can find them again."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {int: BigInt, str: Text(), bytes: LargeBinary(), datetime: UtcDateTime()}  # noqa: RUF012 - SQLAlchemy reads it from the class


def _key() -> Mapped[int]:
    """Return the column that numbers the rows."""
    return mapped_column(primary_key=True, autoincrement=True)


def _ref(column: str, *, index: bool = False) -> Mapped[int]:
    """Return a column that refers to *column*, and whose row goes with that one."""
    return mapped_column(ForeignKey(column, ondelete="CASCADE"), index=index)


def _maybe_ref(column: str) -> Mapped[int | None]:
    """Return a column like `ref` that may be empty."""
    return mapped_column(ForeignKey(column, ondelete="CASCADE"), index=True)


class OwnerRow(Base):
    """
    One user of one namespace.

    *digest* stands for both in a unique index: two names of 500 characters are longer than a
    PostgreSQL index entry can be. *chain* is the link of the newest event of the user's own pins.
    """

    __tablename__ = "owner"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = _key()
    digest: Mapped[bytes] = mapped_column(unique=True)
    namespace: Mapped[str]
    user: Mapped[str]
    chain: Mapped[bytes | None]


class SessionRow(Base):
    """
    One conversation.

    *timezone* is that of its user, UTC without one. *day* is the date that templates print; older
    sessions have none.
    """

    __tablename__ = "session"
    __table_args__ = (UniqueConstraint("owner_id", "key"), {"sqlite_autoincrement": True})

    id: Mapped[int] = _key()
    owner_id: Mapped[int] = _ref("owner.id")
    key: Mapped[str]
    created_at: Mapped[datetime]
    timezone: Mapped[str | None]
    day: Mapped[str | None]


class BranchRow(Base):
    """
    A line of a session, and the row that an append to it locks.

    Counts and times of a session are kept here, not in its own row, so that writers of two
    branches do not wait for each other.

    *line* tells that it is a line that the session itself can be on: the one with the largest
    number is. ``main`` is one without a number too, which is then 0.

    *chain* is the link of the newest entry (see `chain`), *log_chain* that of its newest prompt.
    """

    __tablename__ = "branch"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = _key()
    session_id: Mapped[int] = _ref("session.id", index=True)
    parent_id: Mapped[int | None] = _maybe_ref("branch.id")
    name: Mapped[str]
    forked_at: Mapped[int]
    head: Mapped[int]
    open_calls: Mapped[int]
    inherit: Mapped[str]
    state: Mapped[str]
    updated_at: Mapped[datetime]
    line: Mapped[int | None]
    chain: Mapped[bytes | None]
    log_chain: Mapped[bytes | None]


_PROMOTED = text("origin = 'promoted'")


class MessageRow(Base):
    """
    One message; *position* is dense and unique in its branch.

    *created_at* is when it was said. *stored_at* is when it was stored, where that was later by a
    caller's word; most have none.

    *link* chains it to what stands before it. *nonce* is part of what is hashed, until the text is
    deleted: then *sealed* is the hash of what it said.
    """

    __tablename__ = "message"
    __table_args__ = (
        UniqueConstraint("branch_id", "position"),
        Index(
            "ix_message_promoted",
            "branch_id",
            "position",
            sqlite_where=_PROMOTED,
        ),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = _key()
    branch_id: Mapped[int] = _ref("branch.id")
    position: Mapped[int]
    role: Mapped[str]
    origin: Mapped[str]
    parts: Mapped[str]
    tool_calls: Mapped[str | None]
    tool_call_id: Mapped[str | None]
    name: Mapped[str | None]
    generated_by: Mapped[str | None]
    generated_ids: Mapped[bytes | None]
    created_at: Mapped[datetime]
    stored_at: Mapped[datetime | None]
    nonce: Mapped[bytes | None]
    link: Mapped[bytes | None]
    sealed: Mapped[bytes | None]


class ToolCallRow(Base):
    """
    Who called what and where it was answered: the index that keeps transcripts legal.

    A branch that inherits calls still open at its fork has a row of its own for each.
    *digest* stands for *call_id*, which has no limit of length.
    """

    __tablename__ = "tool_call"
    __table_args__ = (
        Index(None, "branch_id", "digest", "position"),
        Index(None, "branch_id", "answered_at"),
    )

    id: Mapped[int] = _key()
    branch_id: Mapped[int] = _ref("branch.id")
    digest: Mapped[bytes]
    call_id: Mapped[str]
    name: Mapped[str]
    position: Mapped[int]
    answered_at: Mapped[int | None]


class AppendRow(Base):
    """What was stored under a client key, so that a retry gives it back."""

    __tablename__ = "append"

    branch_id: Mapped[int] = mapped_column(
        ForeignKey("branch.id", ondelete="CASCADE"), primary_key=True
    )
    client_key: Mapped[str] = mapped_column(primary_key=True)
    first: Mapped[int]
    last: Mapped[int]
    content: Mapped[bytes]


class PinRow(Base):
    """
    A pin; its id is the order of first setting, *version* the newest one.

    *target_id* is the owner's, the session's or the branch's id, as *scope* says. It repeats one
    of the three references because a unique index takes two NULLs for different.
    """

    __tablename__ = "pin"
    __table_args__ = (
        UniqueConstraint("scope", "target_id", "key"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = _key()
    scope: Mapped[str]
    target_id: Mapped[int]
    key: Mapped[str]
    version: Mapped[int]
    owner_id: Mapped[int] = _ref("owner.id", index=True)
    session_id: Mapped[int | None] = _maybe_ref("session.id")
    branch_id: Mapped[int | None] = _maybe_ref("branch.id")


class PinVersionRow(Base):
    """
    One version of a pin; without a text it says that the pin was removed.

    *made_from* is the position of the message that an automatic one was made of. It is one of the
    pin's own branch, whose deletion takes the text. *after_message* is the newest message of the
    database at the time, which says before which messages of a session it was set; older versions
    have none, and go by their times.
    """

    __tablename__ = "pin_version"

    pin_id: Mapped[int] = mapped_column(ForeignKey("pin.id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str | None]
    author: Mapped[str]
    created_at: Mapped[datetime]
    made_from: Mapped[int | None]
    after_message: Mapped[int | None]
    nonce: Mapped[bytes | None]


class AssemblyRow(Base):
    """One prompt, without its text. *link* chains it to those before it (see `log_chain`)."""

    __tablename__ = "assembly"
    __table_args__ = (
        Index(None, "branch_id", "context", "reply", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = _key()
    branch_id: Mapped[int] = _ref("branch.id")
    head: Mapped[int]
    tokens_by_tier: Mapped[str]
    layout: Mapped[str]
    prompt_hash: Mapped[str]
    pins: Mapped[str] = mapped_column(server_default="[]")
    context: Mapped[int]
    reply: Mapped[int]
    fingerprint: Mapped[str]
    created_at: Mapped[datetime]
    link: Mapped[bytes | None]


class TruncationRow(Base):
    """
    An entry of the log of what was left out.

    Where several runs of one prompt were left out for one reason, *ranges* has each with its
    tokens, and the other columns the whole of them.
    """

    __tablename__ = "truncation"

    id: Mapped[int] = _key()
    assembly_id: Mapped[int] = _ref("assembly.id", index=True)
    first: Mapped[int]
    last: Mapped[int]
    tier: Mapped[str]
    rule: Mapped[str]
    num_tokens: Mapped[int | None]
    room: Mapped[int]
    destination: Mapped[str]
    ranges: Mapped[str | None]


class SummaryRow(Base):
    """A text that stands for messages. *key* names its content, so a second one is the same."""

    __tablename__ = "summary"

    branch_id: Mapped[int] = mapped_column(
        ForeignKey("branch.id", ondelete="CASCADE"), primary_key=True
    )
    key: Mapped[str] = mapped_column(primary_key=True)
    first: Mapped[int]
    last: Mapped[int]
    level: Mapped[int]
    text: Mapped[str]
    author: Mapped[str]
    source_hash: Mapped[str]
    created_at: Mapped[datetime]


class EventRow(Base):
    """
    An entry of a branch's chain that is not a message; it holds hashes and no text.

    *at* is the number of messages that the branch had.
    """

    __tablename__ = "event"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = _key()
    branch_id: Mapped[int] = _ref("branch.id", index=True)
    at: Mapped[int]
    kind: Mapped[str]
    content: Mapped[str]
    link: Mapped[bytes]


class UserEventRow(Base):
    """An entry of the chain of a user's own pins: which versions came and went, as hashes."""

    __tablename__ = "user_event"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = _key()
    owner_id: Mapped[int] = _ref("owner.id", index=True)
    content: Mapped[str]
    link: Mapped[bytes]


class EmbedderRow(Base):
    """What made vectors; *fingerprint* names model, revision, dimension and normalisation."""

    __tablename__ = "embedder"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = _key()
    fingerprint: Mapped[str] = mapped_column(unique=True)


class EmbeddingRow(Base):
    """
    The vector of the characters *first* to *last* of a message, float32 and little-endian.

    An empty one says that there was nothing to embed. It can be made anew, so no export has it.
    """

    __tablename__ = "embedding"

    message_id: Mapped[int] = mapped_column(
        ForeignKey("message.id", ondelete="CASCADE"), primary_key=True
    )
    embedder_id: Mapped[int] = mapped_column(
        ForeignKey("embedder.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    first: Mapped[int] = mapped_column(primary_key=True)
    last: Mapped[int]
    vector: Mapped[bytes]


class CompatibilityRow(Base):
    """The oldest revision whose code may use the tables as they are; one row."""

    __tablename__ = "compatibility"

    oldest: Mapped[str] = mapped_column(primary_key=True)


def add_postgres_options() -> None:
    """
    Add the options of the tables that hold on PostgreSQL alone, for a comparison with a database.

    Said in their classes it would load that dialect, with all its drivers, on every import.
    """
    (index,) = (
        i for i in Base.metadata.tables["message"].indexes if i.name == "ix_message_promoted"
    )
    index.dialect_options["postgresql"]["where"] = _PROMOTED
