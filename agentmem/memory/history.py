"""Read access to a branch: messages, pins, and the log of its prompts."""

from dataclasses import dataclass
from datetime import datetime

from agentmem.context import Imbalance, check_conservation
from agentmem.errors import DamagedRowError, InvalidInputError
from agentmem.memory.aio import in_thread
from agentmem.memory.arguments import pin_scope_of
from agentmem.memory.recall import checked_query, search
from agentmem.memory.snapshot import Snapshot
from agentmem.memory.user_runtime import Runtime
from agentmem.protocols import Hit
from agentmem.types import (
    AssemblyInfo,
    BranchId,
    BranchInfo,
    Discrepancy,
    Origin,
    Pin,
    PinScope,
    Replacement,
    Span,
    StoredMessage,
    Summary,
    TruncationRecord,
)
from agentmem.types.checks import is_int
from agentmem.types.fields import Checked, checked_value
from agentmem.types.short_repr import short_repr

_PAGE = 500
"""Page size for reading all messages."""


def _damage(position: int, problem: str) -> Imbalance:
    span = Span(first=position, last=position, tier=None)
    return Imbalance(assembly_id=None, spans=(span,), problem=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(Checked):
    """Result of the check of one branch; without problems the log balances."""

    branch: BranchInfo
    num_assemblies: int
    num_records: int
    problems: tuple[Imbalance, ...]
    discrepancies: tuple[Discrepancy, ...] = ()


class History:
    """Read access to a branch. Without a cache: each call reads the store."""

    _default_scope = PinScope.SESSION

    def __init__(self, runtime: Runtime, branch_id: BranchId) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._scope = runtime.scope
        self._branch_id = branch_id

    def __repr__(self) -> str:
        return short_repr(type(self).__name__, branch=self._branch_id, user=self._scope.user)

    @property
    def branch(self) -> BranchInfo:
        """The current state of the branch."""
        return self._store.sessions.branch(self._scope, self._branch_id)

    def pins(self) -> tuple[Pin, ...]:
        """Return the pins of the next prompt, in order."""
        return self._store.pins.visible(self._scope, self._branch_id)

    def pin_history(self, key: str, *, scope: PinScope | str | None = None) -> tuple[Pin, ...]:
        """
        Return all versions of a pin, oldest first; a removal is a version without text.

        Without a *scope* it is the most recently changed of the session's, its line's and the
        user's (in a subtask the subtask's).

        Raises:
            PinNotFoundError: it was never set in that scope.
        """
        pin_scope = None if scope is None else pin_scope_of(scope)
        return self._store.pins.history(self._scope, self._branch_id, key, pin_scope=pin_scope)

    def at(self, moment: int | datetime) -> Snapshot:
        """
        Return a read-only snapshot of the branch at a position or a time.

        A time selects by storage, also for messages with an earlier `created_at`.

        Raises:
            InvalidInputError: it is neither, the position does not exist, or the time has no time
                zone.
        """
        if isinstance(moment, bool) or not isinstance(moment, int | datetime):
            raise InvalidInputError(f"at() takes a position or a datetime, got {moment!r:.80}")
        if isinstance(moment, datetime):
            head = self._store.messages.head_at(self._scope, self._branch_id, moment)
        else:
            head = moment
            newest = self.branch.head
            if not 0 <= head <= newest:
                raise InvalidInputError(
                    f"there is no position {head} yet: this branch has {newest} messages"
                )
        return Snapshot(self._runtime, self._branch_id, head)

    def messages(self, first: int = 1, last: int | None = None) -> tuple[StoredMessage, ...]:
        """Return the messages from position *first* to *last*, in full."""
        return self._store.messages.read(self._scope, self._branch_id, first, last)

    def search(self, query: str, *, limit: int = 10, everywhere: bool = False) -> tuple[Hit, ...]:
        """
        Search the messages of this branch; best first.

        A subtask searches inherited messages too, but not those of its siblings. With *everywhere*
        the user's other sessions are searched too.

        Raises:
            ConfigError: this memory has no retriever.
            InvalidInputError: *query* is blank, or *limit* is less than 1.
        """
        if not is_int(limit) or limit < 1:
            raise InvalidInputError(f"limit must be an integer of at least 1, got {limit!r:.80}")
        return search(
            self._runtime,
            self._branch_id,
            checked_query(query),
            limit=limit,
            everywhere=everywhere,
        )

    def truncations(self) -> tuple[TruncationRecord, ...]:
        """Return the truncation records of this branch: what, when, why, and destination."""
        return self._store.prompt_log.truncations(
            self._scope, self.branch.session_id, branch_id=self._branch_id
        )

    def assemblies(self) -> tuple[AssemblyInfo, ...]:
        """Return the log entry of each prompt of this branch, oldest first."""
        return self._store.prompt_log.assemblies(
            self._scope, self.branch.session_id, branch_id=self._branch_id
        )

    def summaries(self) -> tuple[Summary, ...]:
        """Return all summaries first shown by prompts of this branch, ordered by position."""
        return self._store.prompt_log.summaries(self._scope, self._branch_id)

    def replacements(self) -> tuple[Replacement, ...]:
        """
        Return the replaced messages of this branch, each with the later one that replaced it.

        Ordered by the replaced message; inherited ones included.
        """
        return self._store.replacements.visible(self._scope, self._branch_id)

    def restore(self, record: TruncationRecord) -> tuple[StoredMessage, ...]:
        """
        Return, in full, the messages that *record* names as truncated.

        Raises:
            InvalidInputError: it is not a record of `truncations`.
        """
        checked_value("record", record, TruncationRecord)
        return self.messages(record.first, record.last)

    def check(
        self, *, integrity: bool = False, head: str | None = None, key: str | None = None
    ) -> tuple[Imbalance | Discrepancy, ...]:
        """
        Check the log of this branch and the stored data of its session; empty means no problems.

        Every message of every prompt is shown or recorded, and all rows are readable. Positions are
        contiguous, forks, heads and counts are consistent, and each message follows its predecessor
        in the hash chain. With *integrity* the whole hash chain of each branch is verified, with
        deletions and pins. That detects every change except a recomputed chain, or the restore of
        an older database: a *head* kept outside of the database detects those, with its *key* if it
        has one.

        Raises:
            InvalidInputError: *head* is not a head, or does not match *key*.
        """
        problems = self.audit_branch().problems
        try:
            discrepancies = self._store.heads.verify(
                self._scope, self.branch.session_id, integrity=integrity, head=head, key=key
            )
        except DamagedRowError as error:
            return (*problems, _damage(0, str(error)))
        return (*problems, *discrepancies)

    def head(self, *, key: str | None = None) -> str:
        """
        Return the head of the session's hash chain: one line, to keep outside of the database.

        With a *key* it is an HMAC. `check(head=...)` accepts it also for a session that has
        continued, and detects changes and rollbacks. Deleting a branch requires a new head.

        Raises:
            InvalidInputError: *key* is empty.
        """
        return self._store.heads.head(self._scope, self.branch.session_id, key=key)

    def audit_branch(self) -> Audit:
        """Check this branch, its messages and its log; return findings and counts."""
        damages = self._damages()
        try:
            assemblies, records = self.assemblies(), self.truncations()
        except DamagedRowError as error:
            # The readable part of the log does not balance without the corrupt part.
            assemblies, records, damages = (), (), [*damages, _damage(0, str(error))]
        keys = {span.source for a in assemblies for span in a.layout if span.source is not None}
        known = self._store.prompt_log.known_summaries(self._scope, self._branch_id, sorted(keys))
        return Audit(
            branch=self.branch,
            num_assemblies=len(assemblies),
            num_records=len(records),
            problems=(*damages, *check_conservation(assemblies, records, known)),
        )

    def _damages(self) -> list[Imbalance]:
        """Yield corrupt messages, page by page."""
        found = []
        for first in range(1, self.branch.head + 1, _PAGE):
            page = self.messages(first, first + _PAGE - 1)
            positions = (one.position for one in page if one.origin is Origin.DAMAGED)
            found += [_damage(position, "damaged and cannot be read") for position in positions]
        return found

    apins = in_thread(pins)
    apin_history = in_thread(pin_history)
    aat = in_thread(at)
    amessages = in_thread(messages)
    asearch = in_thread(search)
    atruncations = in_thread(truncations)
    aassemblies = in_thread(assemblies)
    asummaries = in_thread(summaries)
    areplacements = in_thread(replacements)
    arestore = in_thread(restore)
    acheck = in_thread(check)
    ahead = in_thread(head)
    aaudit_branch = in_thread(audit_branch)
