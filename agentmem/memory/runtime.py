"""What every conversation of one `Memory` and one user shares."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo

from agentmem.config import Budget
from agentmem.context import Policy
from agentmem.errors import ConfigError, IndexFileError
from agentmem.memory.arguments import checked_budget
from agentmem.memory.background import Background
from agentmem.memory.clocks import moment_in, zone_of
from agentmem.memory.running import RunningReplies
from agentmem.protocols import LanguageModel, SearchIndex, TokenCounter, counter_at
from agentmem.store import Store
from agentmem.types import MessageId, Scope, SessionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A store, who asks, and the model or counter, where there is one."""

    store: Store
    scope: Scope
    model: LanguageModel | None
    counter: TokenCounter | None
    budget: Budget
    policy: Policy
    search_index: SearchIndex | None = None
    zone: tzinfo = UTC
    """Of dates that are shown, and of those that are asked for."""

    has_zone: bool = False
    """Whether it is a user's, so that a time without one is taken for one of it."""

    background: Background = field(default_factory=Background)
    replies: RunningReplies = field(default_factory=RunningReplies)

    def moment(self, said_at: datetime | None) -> datetime | None:
        """
        Return *said_at*, with the user's time zone if it has none and the user has one.

        Raises:
            InvalidInputError: it is not a moment.
        """
        return moment_in(self.zone if self.has_zone else None, said_at)

    def of_session(self, info: SessionInfo) -> "Runtime":
        """
        Return the runtime of a session: with its time zone, and templates at its day.

        Raises:
            ConfigError: this machine does not know the time zone; the message names the session.
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
        Separate the cached prefixes of one user from all others'.

        A hash of a JSON list, since joining two names with a separator would let two different
        pairs collide.
        """
        names = json.dumps([self.scope.namespace, self.scope.user]).encode()
        return hashlib.sha256(names).hexdigest()

    def forget_cached(self, message_ids: Sequence[MessageId]) -> None:
        """
        Drop what is kept elsewhere of messages that were deleted.

        Of keys and values the model drops all that it has cached of this user's texts.

        Raises:
            IndexFileError: vectors of them are left in a file that cannot be removed.
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
