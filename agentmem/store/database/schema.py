"""
The tables, as SQLAlchemy mappings. Rows do not leave this folder: callers get values.

Extensible enumerations (role, state, tier) are text, not a database enum, so that a new value needs
no migration. JSON is text too: JSONB rejects some escapes and reorders keys.
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
# SQLite autoincrements only a column of the type INTEGER.
BigInt = BigInteger().with_variant(Integer, "sqlite")


class Unreadable:
    """An invalid value of a column's type: its row is corrupt."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


class UtcDateTime(TypeDecorator[datetime]):
    """A datetime, always aware and in UTC in Python. SQLite stores it without a zone."""

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
        """Read a datetime; an invalid one fails alone, not with all rows of the result."""
        read = super().result_processor(dialect, coltype)

        def process(value: Any) -> Any:
            try:
                return value if read is None else read(value)
            except (ValueError, TypeError, OverflowError, AttributeError):
                return Unreadable(value)

        return process


class Base(DeclarativeBase):
    """Names constraints equally on every database, so that migrations can refer to them."""

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
    """Return the primary key column."""
    return mapped_column(primary_key=True, autoincrement=True)


def _ref(column: str, *, index: bool = False) -> Mapped[int]:
    """Return a foreign key to *column*, with ON DELETE CASCADE."""
    return mapped_column(ForeignKey(column, ondelete="CASCADE"), index=index)


def _maybe_ref(column: str) -> Mapped[int | None]:
    """Return a nullable column like `ref`."""
    return mapped_column(ForeignKey(column, ondelete="CASCADE"), index=True)


class OwnerRow(Base):
    """
    One user of one namespace.

    *digest* replaces both in a unique index: two names of 500 characters exceed the size of a
    PostgreSQL index entry. *chain* is the link of the newest event of the user's pins.
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

    *timezone* is the user's, UTC without one. *day* is the date in chat templates; older sessions
    have none.
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
    A branch of a session, and the row that an append to it locks.

    Counts and times of a session are here, not in the session's row, so that writers of two
    branches do not block each other.

    *line* is set for lines of the session, of which the one with the largest number is current.
    ``main`` is a line without a number too, which counts as 0.

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
    One message; *position* is contiguous and unique in its branch.

    *created_at* is the time of the message. *stored_at* is the time of storage, set only where a
    caller passed an earlier `created_at`.

    *link* chains it to the previous entry. *nonce* is hashed with the content, until the text is
    deleted: then *sealed* is the hash of the deleted content.
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
    A tool call and the position of its result: the index that keeps transcripts valid.

    A branch that inherits open calls at its fork has a separate row for each.
    *digest* replaces *call_id* in the index, which has unlimited length.
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
    """The messages stored under a client key, returned by a retry."""

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
    A pin; its id gives the order of first setting, *version* is the newest.

    *target_id* is the id of the owner, session or branch, by *scope*. It duplicates one of the
    three foreign keys because two NULLs are distinct in a unique index.
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
    One version of a pin; one without a text is a removal.

    *made_from* is the position of the source message of an automatic pin, in the pin's branch; its
    deletion deletes the text. *after_message* is the newest message of the database at the time,
    which orders it among the messages of a session; older versions have none, and are ordered by
    time.
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
    """One prompt, without its text. *link* chains it to the previous one (see `log_chain`)."""

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
    A truncation record.

    Where several runs of one prompt were truncated for one reason, *ranges* has each with its
    tokens, and the other columns have the total.
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
    """A summary. *key* is its content hash, so a duplicate is the same row."""

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


class ReplacementRow(Base):
    """
    A message whose statement a later message of the branch replaced, both by position.

    The branch is the one on which that was found or set; either may be a message that it inherits.
    """

    __tablename__ = "replacement"

    branch_id: Mapped[int] = mapped_column(
        ForeignKey("branch.id", ondelete="CASCADE"), primary_key=True
    )
    old: Mapped[int] = mapped_column(primary_key=True)
    new: Mapped[int]
    author: Mapped[str]
    created_at: Mapped[datetime]


class EventRow(Base):
    """
    An event in a branch's chain; it has hashes, but no text.

    *at* is the number of messages of the branch at the time.
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
    """An event in the chain of a user's pins: hashes of added and removed versions."""

    __tablename__ = "user_event"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = _key()
    owner_id: Mapped[int] = _ref("owner.id", index=True)
    content: Mapped[str]
    link: Mapped[bytes]


class EmbedderRow(Base):
    """An embedder; *fingerprint* identifies model, revision, dimension and normalization."""

    __tablename__ = "embedder"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = _key()
    fingerprint: Mapped[str] = mapped_column(unique=True)


class EmbeddingRow(Base):
    """
    The vector of the characters *first* to *last* of a message, float32 and little-endian.

    An empty one means that there was no text to embed. Vectors can be rebuilt, so exports omit
    them.
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
    """The oldest compatible schema revision; one row."""

    __tablename__ = "compatibility"

    oldest: Mapped[str] = mapped_column(primary_key=True)


def add_postgres_options() -> None:
    """
    Add PostgreSQL-only table options, for a comparison with a database.

    In the classes they would load that dialect, with all its drivers, on every import.
    """
    (index,) = (
        i for i in Base.metadata.tables["message"].indexes if i.name == "ix_message_promoted"
    )
    index.dialect_options["postgresql"]["where"] = _PROMOTED
