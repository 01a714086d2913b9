"""Column types that are the same value on both databases."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, TypeDecorator

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
