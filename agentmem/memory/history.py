"""What can be read of a branch: its messages, its pins, and the log of its prompts."""

from dataclasses import dataclass
from datetime import datetime

from agentmem.context import Imbalance, check_conservation
from agentmem.errors import DamagedRowError, InvalidInputError
from agentmem.memory.aio import in_thread
from agentmem.memory.arguments import pin_scope_of
from agentmem.memory.recalling import checked_query, search
from agentmem.memory.runtime import Runtime
from agentmem.memory.snapshot import Snapshot
from agentmem.protocols import Hit
from agentmem.types import (
    AssemblyInfo,
    BranchId,
    BranchInfo,
    Discrepancy,
    Origin,
    Pin,
    PinScope,
    Span,
    StoredMessage,
    Summary,
    TruncationRecord,
)
from agentmem.types.fields import Checked, checked_value
from agentmem.types.short_repr import short_repr

_PAGE = 500
"""Messages in one read when all are looked at."""


def _damage(position: int, problem: str) -> Imbalance:
    span = Span(first=position, last=position, tier=None)
    return Imbalance(assembly_id=None, spans=(span,), problem=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(Checked):
    """What a check of one branch found; no problems is a log that balances."""

    branch: BranchInfo
    num_assemblies: int
    num_records: int
    problems: tuple[Imbalance, ...]
    discrepancies: tuple[Discrepancy, ...] = ()


class History:
    """One branch, to be read. Nothing is cached: each call tells what is in the store now."""

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
        """The branch as it is now."""
        return self._store.sessions.branch(self._scope, self._branch_id)

    def pins(self) -> tuple[Pin, ...]:
        """Return the pins that the next prompt begins with, in its order."""
        return self._store.pins.visible(self._scope, self._branch_id)

    def pin_history(self, key: str, *, scope: PinScope | str | None = None) -> tuple[Pin, ...]:
        """
        Read all versions of a pin, oldest first; a removal is a version without text.

        Without a *scope* it is, of the session's own, its line's and the user's (in a subtask of
        its own), the one that was changed last.

        Raises:
            PinNotFoundError: it was never set there.
        """
        pin_scope = None if scope is None else pin_scope_of(scope)
        return self._store.pins.history(self._scope, self._branch_id, key, pin_scope=pin_scope)

    def at(self, moment: int | datetime) -> Snapshot:
        """
        See the branch as it was: at a position, or at a moment.

        What had been stored by that moment counts, also where it had been said before elsewhere.

        Raises:
            InvalidInputError: it is neither, the position does not exist, or the moment has no
                time zone.
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
        """Read the messages from position *first* to *last*, whatever prompts show of them."""
        return self._store.messages.read(self._scope, self._branch_id, first, last)

    def search(self, query: str, *, limit: int = 10, everywhere: bool = False) -> tuple[Hit, ...]:
        """
        Find messages of this branch that fit *query*, best first.

        A subtask finds what it inherits too, and never what its siblings said. With *everywhere*
        the user's other sessions are searched as well.

        Raises:
            ConfigError: this memory has no retriever.
            InvalidInputError: *query* is blank, or *limit* no number from 1 up.
        """
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise InvalidInputError(f"limit must be an integer of at least 1, got {limit!r:.80}")
        return search(
            self._runtime,
            self._branch_id,
            checked_query(query),
            limit=limit,
            everywhere=everywhere,
        )

    def truncations(self) -> tuple[TruncationRecord, ...]:
        """Read the log of this branch: what left its prompts, when, why, and where it is now."""
        return self._store.prompt_log.truncations(
            self._scope, self.branch.session_id, branch_id=self._branch_id
        )

    def assemblies(self) -> tuple[AssemblyInfo, ...]:
        """Read the account of each prompt of this branch, oldest first."""
        return self._store.prompt_log.assemblies(
            self._scope, self.branch.session_id, branch_id=self._branch_id
        )

    def summaries(self) -> tuple[Summary, ...]:
        """Read all summaries that prompts of this branch showed first, by what they cover."""
        return self._store.prompt_log.summaries(self._scope, self._branch_id)

    def restore(self, record: TruncationRecord) -> tuple[StoredMessage, ...]:
        """
        Read the messages, in full, that *record* names as left out or cut.

        Raises:
            InvalidInputError: it is not a record of `truncations`.
        """
        checked_value("record", record, TruncationRecord)
        return self.messages(record.first, record.last)

    def check(
        self, *, integrity: bool = False, head: str | None = None, key: str | None = None
    ) -> tuple[Imbalance | Discrepancy, ...]:
        """
        Check the log of this branch, and what is stored of its session; empty is good.

        Every message of every prompt is shown or on record, and no row is damaged so that it cannot
        be read. Positions are dense, forks, heads and counts agree, and each message is what was
        stored behind the one before it. With *integrity* the hash chain of each branch is followed
        from its beginning too, with what was deleted and what was pinned. That finds every change
        but one by a writer who makes the whole chain anew, or puts back an older database as a
        whole: a *head* from before, kept elsewhere, finds those, with its *key* if it was made with
        one.

        Raises:
            InvalidInputError: *head* is not a head, or does not go with *key*.
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
        Return the head of the session's hash chain: one line, to be kept outside of the database.

        With a *key* it is an HMAC. `check(head=...)` takes it also when the session has gone on,
        and finds that it was changed since, or is an older one. Deleting a branch needs a new one.

        Raises:
            InvalidInputError: *key* is empty.
        """
        return self._store.heads.head(self._scope, self.branch.session_id, key=key)

    def audit_branch(self) -> Audit:
        """Check this branch, its messages and its log, and tell how much there was to check."""
        damages = self._damages()
        try:
            assemblies, records = self.assemblies(), self.truncations()
        except DamagedRowError as error:
            # What of the log can be read does not balance without what cannot.
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
        """Find the messages that cannot be read, a page at a time."""
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
    arestore = in_thread(restore)
    acheck = in_thread(check)
    ahead = in_thread(head)
    aaudit_branch = in_thread(audit_branch)
