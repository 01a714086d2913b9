"""
PostgreSQL connections: driver options from the URL, and session settings.

A database or role may have any defaults, so all settings are explicit. With a transaction pooler a
server session is shared with other clients: settings are then issued in each transaction, and no
statements are prepared on the server.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, event

from agentmem.config import DatabaseConfig
from agentmem.errors import DatabaseUrlError
from agentmem.store.database.error_translation import one_line
from agentmem.store.database.schema import Unreadable
from agentmem.store.database.urls import place_of

_CONNECT_TIMEOUT_S: Final = 10
_ENCODINGS: Final = {"UTF8", "SQL_ASCII"}
_OWN: Final = ("prepare_threshold",)
_NOT_PREPARED: Final = {"", "0", "none", "off", "null"}
_SETTINGS: Final = {
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "standard_conforming_strings": "on",
    "bytea_output": "hex",
    "transform_null_equals": "off",
    "extra_float_digits": "1",
    "idle_in_transaction_session_timeout": "0",
}


def driver_options(url: URL) -> dict[str, Any]:
    """
    Return the options of *url* for the driver.

    ``prepare_threshold`` is a number of uses, or ``none`` or ``0`` to disable prepared statements;
    all others are libpq's, such as ``sslmode``, ``connect_timeout`` or ``options``.

    Raises:
        DatabaseUrlError: an unknown option or an invalid value.
    """
    from psycopg import pq  # noqa: PLC0415 - an extra

    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    options: dict[str, Any] = {"connect_timeout": _CONNECT_TIMEOUT_S}
    for name, value in url.query.items():
        if name not in known and name not in _OWN:
            raise DatabaseUrlError(f"there is no option {name!r} of a PostgreSQL URL")
        if name in {"host", "port"}:  # several are joined by SQLAlchemy
            continue
        if not isinstance(value, str):
            raise DatabaseUrlError(f"the option {name!r} appears {len(value)} times in the URL")
        options[name] = _threshold(value) if name == "prepare_threshold" else value
    given = options.setdefault("client_encoding", "UTF8")
    if given.upper().replace("-", "") not in {"UTF8", "UNICODE", "AUTO"}:
        raise DatabaseUrlError(f"client_encoding must be UTF8, got {given!r}")
    options["client_encoding"] = "UTF8"
    return options


def _threshold(value: str) -> int | None:
    if value.strip().lower() in _NOT_PREPARED:
        return None
    if not value.strip().isdecimal():
        raise DatabaseUrlError(f"prepare_threshold is an integer or none, got {value!r}")
    return int(value)


class PostgresSetup:
    """Creates the connections of one engine, and detects a transaction pooler."""

    def __init__(self, url: URL, config: DatabaseConfig, lock_timeout_s: float) -> None:
        self._place = place_of(url)
        self._options = driver_options(url)
        limits = {
            "lock_timeout": f"{max(1, int(lock_timeout_s * 1000))}",
            "statement_timeout": f"{int((config.statement_timeout_s or 0) * 1000)}",
        }
        # At the start of a session they become its defaults, which RESET restores.
        asked = (_as_options(limits), self._options.get("options", ""), _as_options(_SETTINGS))
        self._at_start = " ".join(filter(None, asked))
        self._of_session = _statement({**limits, **_SETTINGS}, is_local=False)
        self._of_transaction = _statement({**limits, **_SETTINGS}, is_local=True)
        self._takes_options = True
        self.is_pooled = False

    def listen(self, engine: Engine) -> None:
        """Create the connections of *engine*, before SQLAlchemy uses them."""
        event.listen(engine, "do_connect", self._connect)
        event.listen(engine, "begin", self._begin)

    def _connect(
        self, dialect: Any, _record: object, arguments: list[Any], options: dict[str, Any]
    ) -> Any:
        given = {**options, **self._options}
        if self.is_pooled:
            given.setdefault("prepare_threshold", None)
        try:
            connection = self._open(dialect, arguments, given)
        except (TypeError, ValueError) as error:
            raise DatabaseUrlError(f"cannot open {self._place}: {one_line(error)}") from error
        try:
            self._settle(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, dialect: Any, arguments: list[Any], given: dict[str, Any]) -> Any:
        if self._takes_options:
            try:
                return dialect.connect(*arguments, **{**given, "options": self._at_start})
            except dialect.loaded_dbapi.OperationalError as error:
                # Some poolers reject settings at the start of a session.
                if not re.search("startup|options", str(error)):
                    raise
        connection = dialect.connect(*arguments, **given)
        self._takes_options = False
        return connection

    def _settle(self, connection: Any) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding not in _ENCODINGS:
            raise DatabaseUrlError(
                f"the database {self._place} has the encoding {encoding}, which cannot hold every "
                "text: create one with ENCODING 'UTF8'"
            )
        _read_any_moment(connection)
        connection.autocommit = True
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
        if pid == connection.info.backend_pid:
            if not self._takes_options:
                connection.execute(self._of_session)
        else:
            # A pooler reports another name to its clients, and shares the session.
            self.is_pooled = True
            if "prepare_threshold" not in self._options:
                connection.prepare_threshold = None
        connection.autocommit = False

    def _begin(self, connection: Connection) -> None:
        if self.is_pooled:
            connection.exec_driver_sql(self._of_transaction)
        if connection.get_execution_options().get("agentmem_not_durable", False):
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")

    def prepare_nothing(self) -> None:
        """Disable prepared statements: one was missing, so server sessions are shared."""
        self.is_pooled = True
        self._options["prepare_threshold"] = None


def _read_any_moment(connection: Any) -> None:
    """Read a timestamp out of range, such as infinity, as unreadable: only its row is lost."""
    from psycopg import DataError, pq  # noqa: PLC0415 - an extra
    from psycopg.abc import AdaptContext, Buffer  # noqa: PLC0415 - as above
    from psycopg.adapt import Loader  # noqa: PLC0415 - as above

    adapters = connection.adapters
    oid = adapters.types["timestamptz"].oid
    strict = adapters.get_loader(oid, pq.Format.TEXT)

    class AnyMoment(Loader):
        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            self._strict = strict(oid, context)

        def load(self, data: Buffer) -> Any:
            try:
                return self._strict.load(data)
            except DataError:
                return Unreadable(bytes(data).decode(errors="replace"))

    adapters.register_loader(oid, AnyMoment)


def _as_options(settings: Mapping[str, str]) -> str:
    return " ".join(f"-c {name}={value.replace(' ', '')}" for name, value in settings.items())


def _statement(settings: Mapping[str, str], *, is_local: bool) -> str:
    calls = (f"set_config('{name}', '{value}', {is_local})" for name, value in settings.items())
    return f"SELECT {', '.join(calls)}"
