"""What the model sees, and the account of what it does not."""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType

from agentmem.types.fields import Checked, check_fields
from agentmem.types.frozen import FrozenMapping
from agentmem.types.messages import BranchId, Message
from agentmem.types.recalled import RecalledHit
from agentmem.types.text import check_text

AssemblyId = NewType("AssemblyId", int)


class Tier(StrEnum):
    """Where a piece of the prompt comes from, from most to least stable."""

    TEMPLATE = "template"
    """What the chat template adds of its own: default system text, generation prompt."""

    PINNED = "pinned"
    SUMMARY = "summary"
    RECENT = "recent"
    RETRIEVED = "retrieved"
    CURRENT = "current"


class TruncationReason(StrEnum):
    """Why something is not in a prompt."""

    WINDOW = "left the window"
    """The recent window slid on, or older calls of a long tool loop gave way."""

    NOT_INHERITED = "not inherited"
    """A subtask that does not see its parent's messages."""

    CLIPPED = "clipped"
    """Shown with its middle cut out."""

    STUBBED = "replaced by a stub"
    """A policy discarded it; a line tells the model that it was there."""

    NO_ROOM = "no room for its summary"
    SUMMARY_DELETED = "its summary was deleted"
    """A message that it covered was deleted, so its text may not be shown again."""

    NOT_RETRIEVED = "not retrieved again"
    REPLACED = "replaced by what came later"
    """The closing of a call whose result came late, or a broken-off answer that was retried."""

    DELETED = "deleted"
    """What it said was deleted, and the transcript is legal without it."""

    PURGED = "left out by a prompt whose account was purged"
    """When and why it left went with the log of then; the oldest prompt of the log names it."""


class DisplayForm(StrEnum):
    """How much of a message is shown."""

    FULL = "full"
    CLIPPED = "clipped"
    STUB = "stub"
    REPLACED = "replaced"
    """In the window, but another message stands for it."""

    DELETED = "deleted"
    """In the window, but it says nothing any more, and nothing needs it."""

    @property
    def is_shown(self) -> bool:
        """Whether a prompt shows something of it."""
        return self not in (DisplayForm.REPLACED, DisplayForm.DELETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span(Checked):
    """What became of the messages *first* to *last* (positions, both included)."""

    first: int
    last: int
    tier: Tier | None
    """The tier that shows them; None when they are not in the prompt."""

    form: DisplayForm = DisplayForm.FULL
    kept: int | None = None
    """Characters that a clipped message still shows."""

    source: str | None = None
    """Key of the summary that covers them."""

    times: int = 1
    """How many messages say the same as a recalled one that is kept in its place."""

    def explain(self) -> str:
        """Describe in words what became of these messages."""
        where = "not shown" if self.tier is None else f"{self.tier} tier"
        how = "" if self.form is DisplayForm.FULL else f", {self.form}"
        via = "" if self.source is None else f", by summary {self.source}"
        return f"messages {self.first}-{self.last}: {where}{how}{via}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """
    A text that stands for the messages *first* to *last* of a branch.

    A summary is never changed: another text is another summary. Which ones a prompt shows stands
    in its layout.
    """

    branch_id: BranchId
    first: int
    last: int
    level: int
    """0 when it was made of messages only, else one more than the highest it was made of."""

    text: str
    author: str
    source_hash: str
    """Of the texts it was made of."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_text("summary", self.text)

    @property
    def key(self) -> str:
        """Name the summary by its content; short enough to be read in a log."""
        facts = (self.first, self.last, self.level, self.text, self.author, self.source_hash)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationRecord(Checked):
    """
    Messages that could have been in the prompt and are not, and why.

    *first* and *last* are positions, both included. *num_tokens* is None for a range that was
    never read, such as what lies before a window that was rebuilt from its end.
    """

    branch_id: BranchId
    first: int
    last: int
    tier: Tier
    """The tier that lost them."""

    reason: TruncationReason
    num_tokens: int | None
    room: int
    """Tokens that tier had in this prompt."""

    destination: str
    """Where they are now; ``store`` means that ``Session.messages(first, last)`` reads them."""

    assembly_id: AssemblyId | None = None
    created_at: datetime | None = None

    def explain(self) -> str:
        """Describe in words what was left out, and where it is."""
        size = "not counted" if self.num_tokens is None else f"{self.num_tokens} tokens"
        return (
            f"messages {self.first}-{self.last} ({size}) {self.reason}: the {self.tier} tier had "
            f"room for {self.room} tokens; now in: {self.destination}"
        )


class PrefixBreak(StrEnum):
    """Why the prompt does not go on from the one before."""

    FIRST = "first prompt"
    BRANCH = "branch"
    """A subtask that could not go on from its parent's prompt."""

    BUDGET = "budget"
    TEMPLATE = "template"
    PINS = "pin changed"
    COMPACTION = "compaction"
    RETRIEVED = "retrieved text"
    RESULT = "result came"
    """A call that was open has its result where a stand-in was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse(Checked):
    """What this prompt has in common with the one before it on the same branch."""

    common_tokens: int
    """Tokens that both begin with, so that their KV can be reused if it is still cached."""

    broken_by: PrefixBreak | None
    """Why the common prefix ends before the previous prompt did; None if it did not."""

    detail: str = ""
    """What it was, such as the keys of the pins that changed."""

    def explain(self) -> str:
        """Describe in words how far the prompt begins like the one before."""
        why = "" if self.broken_by is None else f", then broken by: {self.broken_by}"
        what = f" ({self.detail})" if self.detail else ""
        return f"begins like the prompt before for {self.common_tokens} tokens{why}{what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(Checked):
    """
    What the model sees, and an account of it.

    ``len(token_ids)`` is ``sum(tokens_by_tier.values())``, and *layout* covers each position of
    the branch's view exactly once.
    """

    branch_id: BranchId
    head: int
    """Position of the newest message when the prompt was assembled."""

    messages: tuple[Message, ...]
    text: str
    token_ids: tuple[int, ...] = field(repr=False)
    tokens_by_tier: Mapping[Tier, int]
    layout: tuple[Span, ...]
    truncations: tuple[TruncationRecord, ...]
    """What this assembly newly left out; what earlier ones left out is in the log already."""

    summaries: tuple[Summary, ...]
    """What the summary tier shows, oldest first."""

    pins: tuple[tuple[str, int], ...]
    """Scope and key of each pin shown, and its version."""

    reuse: Reuse
    context: int
    reply: int
    fingerprint: str
    """Which tokenizer and template counted."""

    assembly_id: AssemblyId | None = None
    recalled: tuple[RecalledHit, ...] = ()
    """What was recalled for this prompt, the best first."""

    default_system: str | None = None
    """
    The system text that the model's chat template writes by itself while there are no pins.

    Pins are a system message, which takes its place. None where the template has no such text.
    """

    warnings: tuple[str, ...] = ()
    """What makes prompts of this branch worse than they could be, in words with numbers."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def prompt_hash(self) -> str:
        """SHA-256 over the token ids: two prompts are the same bytes if this is the same."""
        packed = struct.pack(f"<{len(self.token_ids)}I", *self.token_ids)
        return hashlib.sha256(packed).hexdigest()

    def explain(self) -> str:
        """
        Describe in words what the model sees and what it does not, one line for each part.

        Positions are those of `Session.messages()`.
        """
        free = self.context - self.reply - self.num_tokens
        size = f"{self.num_tokens} tokens of {self.context}, {self.reply} kept for the reply"
        lines = [
            f"{size}, {free} free; counted by {self.fingerprint}",
            *(f"{tier}: {num} tokens" for tier, num in self.tokens_by_tier.items()),
            *self._explain_default_system(),
            *(f"pin {key}, version {version}" for key, version in self.pins),
            *(span.explain() for span in self.layout),
            *(hit.explain() for hit in self.recalled),
            *(record.explain() for record in self.truncations),
            self.reuse.explain(),
            *(f"warning: {warning}" for warning in self.warnings),
        ]
        return "\n".join(lines)

    def _explain_default_system(self) -> tuple[str, ...]:
        if self.default_system is None:
            return ()
        said = "not shown, since pins take its place" if self.pins else "shown"
        return (f"the template's own system text is {said}: {self.default_system!r}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblyInfo(Checked):
    """A prompt as the log keeps it: everything but the text."""

    id: AssemblyId
    branch_id: BranchId
    head: int
    tokens_by_tier: Mapping[Tier, int]
    layout: tuple[Span, ...]
    prompt_hash: str
    pins: tuple[tuple[str, int], ...]
    context: int
    reply: int
    fingerprint: str
    created_at: datetime

    @property
    def num_tokens(self) -> int:
        return sum(self.tokens_by_tier.values())


def freeze(mapping: Mapping[Tier, int]) -> Mapping[Tier, int]:
    """Return a read-only copy of *mapping* in the order of the tiers, zeros left out."""
    return FrozenMapping({tier: mapping[tier] for tier in Tier if mapping.get(tier)})


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Count the tokens that two sequences begin with alike."""
    # Slices are compared far faster than tokens one by one; two tuples, as no list equals a tuple.
    one, other = tuple(one), tuple(other)
    same, most = 0, min(len(one), len(other))
    while same < most:
        middle = (same + most + 1) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            most = middle - 1
    return same
