"""What the mappings of all tables have in common."""

from datetime import datetime

from sqlalchemy import ForeignKey, LargeBinary, MetaData, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from agentmem.store.columns import BigInt, UtcDateTime


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


def key() -> Mapped[int]:
    """Return the column that numbers the rows."""
    return mapped_column(primary_key=True, autoincrement=True)


def ref(column: str, *, index: bool = False) -> Mapped[int]:
    """Return a column that refers to *column*, and whose row goes with that one."""
    return mapped_column(ForeignKey(column, ondelete="CASCADE"), index=index)


def maybe_ref(column: str) -> Mapped[int | None]:
    """Return a column like `ref` that may be empty."""
    return mapped_column(ForeignKey(column, ondelete="CASCADE"), index=True)
