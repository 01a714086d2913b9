"""The tables of what was made of messages: summaries, vectors, and events of their chain."""

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from agentmem.store.base import Base, key, ref


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

    id: Mapped[int] = key()
    branch_id: Mapped[int] = ref("branch.id", index=True)
    at: Mapped[int]
    kind: Mapped[str]
    content: Mapped[str]
    link: Mapped[bytes]


class UserEventRow(Base):
    """An entry of the chain of a user's own pins: which versions came and went, as hashes."""

    __tablename__ = "user_event"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = key()
    owner_id: Mapped[int] = ref("owner.id", index=True)
    content: Mapped[str]
    link: Mapped[bytes]


class EmbedderRow(Base):
    """What made vectors; *fingerprint* names model, revision, dimension and normalisation."""

    __tablename__ = "embedder"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = key()
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
