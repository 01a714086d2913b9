"""Shared state of all conversations of one `Memory` and one user."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo

from agentmem.config import Budget
from agentmem.context import Policy
from agentmem.errors import ConfigError, IndexFileError
from agentmem.memory.arguments import checked_budget
from agentmem.memory.background_jobs import Background
from agentmem.memory.running_replies import RunningReplies
from agentmem.memory.session_clock import moment_in, zone_of
from agentmem.protocols import LanguageModel, SearchIndex, TokenCounter, counter_at
from agentmem.store import Store
from agentmem.types import MessageId, Scope, SessionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A store, the user's scope, and the optional model or counter."""

    store: Store
    scope: Scope
    model: LanguageModel | None
    counter: TokenCounter | None
    budget: Budget
    policy: Policy
    search_index: SearchIndex | None = None
    zone: tzinfo = UTC
    """Time zone of shown dates, and of dates in queries."""

    has_zone: bool = False
    """Whether it was set for the user, so that naive times are in it."""

    background: Background = field(default_factory=Background)
    replies: RunningReplies = field(default_factory=RunningReplies)

    def moment(self, said_at: datetime | None) -> datetime | None:
        """
        Return *said_at*; a naive time gets the user's time zone, if there is one.

        Raises:
            InvalidInputError: it is not a datetime.
        """
        return moment_in(self.zone if self.has_zone else None, said_at)

    def of_session(self, info: SessionInfo) -> "Runtime":
        """
        Return the runtime of a session: with its time zone, and its date in templates.

        Raises:
            ConfigError: the time zone is unknown on this machine; the message names the session.
        """
        counter = self.counter
        if counter is not None and info.day is not None:
            counter = counter_at(counter, info.day)
        try:
            zone = zone_of(info.timezone)
        except ConfigError as error:
            raise ConfigError(
                f"the clock of session {info.key!r}: {error}; Memory.session(key, timezone=...) "
                "sets another"
            ) from error
        return replace(self, counter=counter, zone=zone, has_zone=info.timezone is not None)

    def need_model(self) -> LanguageModel:
        if self.model is None:
            raise ConfigError(
                "this memory has no model to answer with: open it with Memory.open(url, "
                "model=...), or call your own model on session.assemble() and append() its answer"
            )
        return self.model

    def need_counter(self) -> TokenCounter:
        if self.counter is None:
            raise ConfigError(
                "this memory cannot count tokens: open it with Memory.open(url, model=...) "
                "or Memory.open(url, counter=...)"
            )
        return self.counter

    def need_search_index(self) -> SearchIndex:
        if self.search_index is None:
            raise ConfigError(
                "this memory cannot search: open it with Memory.open(url, "
                "retriever=HybridRetriever.load()) from agentmem.retrieval"
            )
        return self.search_index

    def notify_appended(self) -> None:
        """Notify the retriever that something was stored."""
        if self.search_index is not None:
            self.search_index.added()

    def budget_for(self, budget: Budget | None) -> Budget:
        return self.budget if budget is None else checked_budget(budget, self.model)

    @property
    def cache_salt(self) -> str:
        """
        The cache salt, which separates the cached prefixes of users.

        A hash of a JSON list, since with a joining separator two different pairs could collide.
        """
        names = json.dumps([self.scope.namespace, self.scope.user]).encode()
        return hashlib.sha256(names).hexdigest()

    def forget_cached(self, message_ids: Sequence[MessageId]) -> None:
        """
        Remove deleted messages from caches and indexes.

        The model evicts all cached keys and values of this user.

        Raises:
            IndexFileError: a file with their vectors cannot be removed.
        """
        self.store.messages.decoder.forget()
        if self.model is not None:
            self.model.forget(cache_salt=self.cache_salt)
        retrieval_store = self.store.retrieval_store(self.scope.namespace)
        try:
            if self.search_index is not None:
                self.search_index.forget(self.scope, message_ids)
            elif message_ids:
                retrieval_store.drop_files()
        except IndexFileError as error:
            raise IndexFileError(
                "it is deleted from the database and from search results, but its vectors remain "
                f"in a cache file: {error}; make the folder writable and delete "
                f"{retrieval_store.folder}, which is rebuilt automatically"
            ) from error
