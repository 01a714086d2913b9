"""`Memory`: a store, and optionally a model, opened together."""

from dataclasses import replace
from datetime import date as Day  # noqa: N812 - a parameter has its name
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from agentmem.config import Budget, DatabaseConfig
from agentmem.context import Policy
from agentmem.errors import ConfigError
from agentmem.memory.aio import in_own_thread, in_thread
from agentmem.memory.arguments import (
    check_database,
    check_makers,
    checked_budget,
    checked_retriever,
    moment_before,
    path_of,
    seconds,
)
from agentmem.memory.background_jobs import Background
from agentmem.memory.health_check import health_of
from agentmem.memory.running_replies import RunningReplies
from agentmem.memory.session import Session
from agentmem.memory.session_clock import check_clock, zone_of
from agentmem.memory.user_runtime import Runtime
from agentmem.protocols import (
    IndexStatus,
    LanguageModel,
    OnIndexProgress,
    Retriever,
    SearchScope,
    TokenCounter,
)
from agentmem.store import StaleSession, Store, Transferred
from agentmem.types import Health, Scope, SessionInfo
from agentmem.types.fields import checked_value
from agentmem.types.short_repr import short_repr


class Memory:
    """
    A store of conversations, and the prompts assembled from it.

    Thread-safe; it holds no session state, so any number of processes may open the same database.
    """

    def __init__(  # noqa: PLR0913 - the facade is where everything meets
        self,
        store: Store,
        *,
        model: LanguageModel | None = None,
        counter: TokenCounter | None = None,
        retriever: Retriever | None = None,
        budget: Budget | None = None,
        policy: Policy | None = None,
        namespace: str = "default",
        timezone: str | None = None,
        date: Day | None = None,
    ) -> None:
        checked_value("store", store, Store, ConfigError)
        check_makers(model, counter, policy)
        self._store = store
        self._model = model
        self._counter = model.counter if counter is None and model is not None else counter
        self._budget = checked_budget(budget, model)
        self._policy = policy or Policy()
        self._namespace = namespace
        found = checked_retriever(retriever)
        self._search_index = (
            None if found is None else found.open_index(store.retrieval_store(namespace))
        )
        check_clock(timezone, date)
        self._timezone = timezone
        self._date = date
        self._background = Background()
        self._replies = RunningReplies()

    def __repr__(self) -> str:
        return short_repr("Memory", self._store.database.place, namespace=self._namespace)

    @classmethod
    def open(  # noqa: PLR0913 - the facade is where everything meets
        cls,
        url: str = "sqlite:///agentmem.db",
        *,
        model: LanguageModel | None = None,
        counter: TokenCounter | None = None,
        retriever: Retriever | None = None,
        budget: Budget | None = None,
        policy: Policy | None = None,
        namespace: str = "default",
        timezone: str | None = None,
        date: Day | None = None,
        database: DatabaseConfig | None = None,
        read_only: bool = False,
    ) -> "Memory":
        """
        Open the database at *url*, and create the tables in an empty one.

        Args:
            url: ``sqlite:///file.db``, ``sqlite://`` (memory), ``postgresql://user@host/name``.
            model: answers, and counts with its chat template.
            counter: counts tokens for a custom model.
            retriever: searches earlier messages: `agentmem.retrieval.HybridRetriever`.
            budget: the default budget; 4,096 tokens or the model's window, if that is less.
            policy: discarding, automatic pins, and summaries.
            namespace: separates applications or tenants in one database.
            timezone: IANA name of the users' time zone, for sessions created from now on.
            date: the date in chat templates, likewise.
            database: sizes of the connection pool, and timeouts.
            read_only: whether nothing is written, to the database or to files, prompts included.

        Raises:
            DatabaseUrlError, SchemaVersionError: no usable database, or another schema version.
            ConfigError: *budget* exceeds the model's window; unknown *timezone*; a wrong type.
        """
        check_makers(model, counter, policy)
        check_clock(timezone, date)
        check_database(database, read_only=read_only)
        _ = Scope(namespace=namespace), checked_budget(budget, model), checked_retriever(retriever)
        return cls(
            Store.open(url, config=database, read_only=read_only),
            model=model,
            counter=counter,
            retriever=retriever,
            budget=budget,
            policy=policy,
            namespace=namespace,
            timezone=timezone,
            date=date,
        )

    def session(
        self,
        key: str,
        *,
        user: str = "default",
        timezone: str | None = None,
        date: Day | None = None,
    ) -> Session:
        """
        Get or create the session *key* of *user*.

        A session keeps the time zone and the date of its creation, so that its prompts are stable:
        those given here, else those of `open`, else UTC and the current date. Given for an existing
        session, they replace the stored ones; an already open session uses them when it is
        reopened.

        Raises:
            InvalidInputError: *key* or *user* is empty, too long or cannot be stored.
            ConfigError: unknown *timezone*, or *date* is not a date.
        """
        scope = Scope(namespace=self._namespace, user=user)
        check_clock(timezone, date)
        name, day = timezone or self._timezone, date or self._date
        zone = zone_of(name)
        info = self._store.sessions.get_or_create(
            scope, key, timezone=name, day_of=lambda now: day or now.astimezone(zone).date()
        )
        wanted = (timezone or info.timezone, date or info.day)
        if wanted != (info.timezone, info.day):
            self._store.sessions.set_clock(scope, info.id, timezone=wanted[0], day=wanted[1])
            info = replace(info, timezone=wanted[0], day=wanted[1])
        return self._open_session(scope, info)

    def find(self, key: str, *, user: str = "default") -> Session:
        """
        Get the existing session *key* of *user*.

        Raises:
            SessionNotFoundError: it does not exist.
        """
        scope = Scope(namespace=self._namespace, user=user)
        return self._open_session(scope, self._store.sessions.get(scope, key))

    def _open_session(self, scope: Scope, info: SessionInfo) -> Session:
        return Session(self._runtime(scope).of_session(info), info)

    def users(self) -> tuple[str, ...]:
        """List the users of this namespace that have sessions, or user pins."""
        return self._store.sessions.users(self._namespace)

    def sessions(self, *, user: str = "default") -> tuple[SessionInfo, ...]:
        """List the sessions of *user*, the most recently active first."""
        return self._store.sessions.list(Scope(namespace=self._namespace, user=user))

    def delete(self, key: str, *, user: str = "default") -> None:
        """
        Permanently delete a session with all its messages.

        Raises:
            SessionNotFoundError: it does not exist.
        """
        scope = Scope(namespace=self._namespace, user=user)
        # A corrupt session may be unreadable otherwise, but can be deleted.
        gone = self._store.deletion.session(scope, self._store.sessions.find_id(scope, key))
        self._runtime(scope).forget_cached(gone.messages)

    def delete_user(self, user: str) -> int:
        """Permanently delete all sessions and pins of *user*; return the number of sessions."""
        scope = Scope(namespace=self._namespace, user=user)
        gone = self._store.deletion.user(scope)
        self._runtime(scope).forget_cached(gone.messages)
        return len(gone.sessions)

    def purge(self, older_than: timedelta, *, dry_run: bool = False) -> tuple[StaleSession, ...]:
        """
        Delete the sessions of all users of this namespace that were inactive for *older_than*.

        With *dry_run* nothing is deleted; the sessions are returned in either case.

        Raises:
            InvalidInputError: *older_than* is negative, or before the earliest datetime.
        """
        before = moment_before(older_than)
        return self._store.retention.purge(
            before,
            namespace=self._namespace,
            dry_run=dry_run,
            forget=lambda scope, gone: self._runtime(scope).forget_cached(gone.messages),
        )

    def purge_log(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """
        Delete the prompt log entries of this namespace that are that old; return their number.

        Messages, pins and summaries are kept. Each branch keeps its last entry of each budget, from
        which its window continues, and `Session.check` still passes: truncations of purged entries
        have records with `TruncationReason.PURGED`. With *dry_run* nothing is deleted.

        Raises:
            InvalidInputError: *older_than* is negative, or before the earliest datetime.
        """
        before = moment_before(older_than)
        retention = self._store.retention
        return retention.purge_log(before, namespace=self._namespace, dry_run=dry_run)

    def export(
        self,
        path: str | Path,
        *,
        user: str | None = None,
        key: str | None = None,
        hmac_key: str | None = None,
    ) -> Transferred:
        """
        Export a session, all sessions of a user, or without *user* this namespace, to a file.

        The file is JSON Lines with a checksum, and is written atomically. With an *hmac_key* it
        ends with an HMAC, which `load` verifies with the same key.

        Raises:
            SessionNotFoundError: the user has no session of that *key*, or no data.
            InvalidInputError: a *key* without a *user*, or the file cannot be written.
        """
        scope = None if user is None else Scope(namespace=self._namespace, user=user)
        return self._store.transfer.export(
            path_of(path), scope=scope, key=key, namespace=self._namespace, hmac_key=hmac_key
        )

    def load(
        self, path: str | Path, *, user: str | None = None, hmac_key: str | None = None
    ) -> Transferred:
        """
        Import a file of `export`, all or nothing; for *user* if one is given.

        The data is written to this namespace, from whichever it was exported. From a file of
        several namespaces, which older versions wrote, only this one's sessions are imported. A
        file whose hash chain is broken or missing is rejected; for a file of an older version
        `Transferred.unproven` lists the data without a chain. With an *hmac_key* the file must have
        been exported with that key.

        Raises:
            DamagedFileError: the file is corrupt, or is not an export.
            ConflictError: a session of the same key exists.
            InvalidInputError: a *user* is given and the file has several, or it has several
                namespaces and none is this one.
        """
        scope = None if user is None else Scope(namespace=self._namespace, user=user)
        loaded = self._store.transfer.load(
            path_of(path), scope=scope, namespace=self._namespace, hmac_key=hmac_key
        )
        if self._search_index is not None:
            self._search_index.added()
        return loaded

    def wait_for_index(self, timeout_s: float | None = None) -> bool:
        """
        Wait until all stored messages are embedded; return whether they are.

        Optional: a message is searchable by words as soon as it is stored. Without a retriever this
        returns at once.
        """
        wait_s = None if timeout_s is None else seconds(timeout_s)
        return self._search_index is None or self._search_index.wait(wait_s)

    def wait_for_compactions(self, timeout_s: float | None = None) -> bool:
        """
        Wait until background compaction is idle; return whether it is.

        Optional, except for reproducible prompts. See `Policy.compact_ahead` and
        `Session.compaction_state()`.
        """
        return self._background.wait(None if timeout_s is None else seconds(timeout_s))

    def index_status(self, *, user: str = "default", key: str | None = None) -> IndexStatus:
        """
        Return the index status of the session *key* of *user*, or of all sessions.

        Raises:
            ConfigError: this memory has no retriever.
            SessionNotFoundError: the session does not exist.
        """
        runtime, search_scope = self._search_scope(user, key)
        return runtime.need_search_index().status(search_scope)

    def rebuild_index(
        self,
        *,
        user: str = "default",
        key: str | None = None,
        on_progress: OnIndexProgress | None = None,
    ) -> IndexStatus:
        """
        Rebuild the index of a session, or of all sessions of *user*, from the messages.

        The two are separate indexes. Stored vectors are reused.

        Raises:
            ConfigError: this memory has no retriever.
            SessionNotFoundError: the session does not exist.
        """
        runtime, search_scope = self._search_scope(user, key)
        return runtime.need_search_index().rebuild(search_scope, on_progress)

    def health(self, *, timeout_s: float = 2.0) -> Health:
        """
        Return the health of this memory, within about *timeout_s* seconds.

        It does not raise: errors are in the value, and `Health.is_ok` summarizes them. It does not
        wait for a step of the model, and works in a fork and after `close`.
        """
        wait_s = seconds(timeout_s)
        return health_of(self._store, self._background, self._search_index, self._model, wait_s)

    ahealth = in_own_thread(health)
    asession = in_thread(session)
    afind = in_thread(find)
    ausers = in_thread(users)
    asessions = in_thread(sessions)
    adelete = in_thread(delete)
    adelete_user = in_thread(delete_user)
    apurge = in_thread(purge)
    apurge_log = in_thread(purge_log)
    aexport = in_thread(export)
    aload = in_thread(load)
    await_for_index = in_own_thread(wait_for_index)
    await_for_compactions = in_own_thread(wait_for_compactions)
    aindex_status = in_thread(index_status)
    arebuild_index = in_thread(rebuild_index)

    def close(self, *, timeout_s: float = 0.0) -> None:
        """
        Close the database; model and embedder are the caller's and stay loaded.

        No new reply starts. Running replies have *timeout_s* seconds to finish; then they are
        cancelled, and the answers so far are stored. Other running calls are awaited. A background
        compaction that takes more than some seconds is abandoned. Idempotent and thread-safe. In a
        coroutine use `aclose()`, or an ``async with`` block: replies that coroutines read cannot
        finish while their loop is blocked.
        """
        self._replies.close(seconds(timeout_s))
        self._background.close()
        if self._search_index is not None:
            self._search_index.close()
        self._store.close()

    aclose = in_thread(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is GeneratorExit:
            self.close()
        else:
            await self.aclose()

    def _search_scope(self, user: str, key: str | None) -> tuple[Runtime, SearchScope]:
        scope = Scope(namespace=self._namespace, user=user)
        session_id = None if key is None else self._store.sessions.get(scope, key).id
        return self._runtime(scope), SearchScope(scope=scope, session_id=session_id)

    def _runtime(self, scope: Scope) -> Runtime:
        return Runtime(
            store=self._store,
            scope=scope,
            model=self._model,
            counter=self._counter,
            budget=self._budget,
            policy=self._policy,
            search_index=self._search_index,
            background=self._background,
            replies=self._replies,
        )
