"""The assembled prompt, its layout, and the records of truncated messages."""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType

from agentmem.errors import InvalidInputError
from agentmem.types.fields import Checked, check_fields
from agentmem.types.frozen import FrozenMapping
from agentmem.types.messages import BranchId, Message
from agentmem.types.passages import TextRange, characters
from agentmem.types.recalled import RecalledHit
from agentmem.types.short_repr import ShortRepr
from agentmem.types.text import check_text

AssemblyId = NewType("AssemblyId", int)


class Tier(StrEnum):
    """The source of a part of the prompt, from most to least stable."""

    TEMPLATE = "template"
    """Tokens added by the chat template: default system text, generation prompt."""

    PINNED = "pinned"
    SUMMARY = "summary"
    RECENT = "recent"
    RETRIEVED = "retrieved"
    CURRENT = "current"


class TruncationReason(StrEnum):
    """Why a message is not in a prompt, or not in full."""

    WINDOW = "left the window"
    """The recent window slid, or older calls of a long tool loop were dropped."""

    NOT_INHERITED = "not inherited"
    """A subtask that does not inherit its parent's messages."""

    CLIPPED = "clipped"
    """Shown without its middle."""

    STUBBED = "replaced by a stub"
    """Discarded by a policy; a one-line stub is shown."""

    NO_ROOM = "no room for its summary"
    SUMMARY_DELETED = "its summary was deleted"
    """Its summary covers a deleted message, and was deleted too."""

    NOT_RETRIEVED = "not retrieved again"
    REPLACED = "replaced by what came later"
    """A synthetic result whose real one came late, or an interrupted answer that was retried."""

    DELETED = "deleted"
    """Its content was deleted, and the transcript is valid without it."""

    PURGED = "left out by a prompt whose account was purged"
    """Its record was purged with older log entries; the oldest remaining entry names it."""


class DisplayForm(StrEnum):
    """How much of a message is shown."""

    FULL = "full"
    CLIPPED = "clipped"
    STUB = "stub"
    PASSAGES = "passages"
    """Some passages of a long recalled message."""

    REPLACED = "replaced"
    """In the window, but replaced by another message."""

    DELETED = "deleted"
    """In the window, but its content was deleted and it is not shown."""

    @property
    def is_shown(self) -> bool:
        """Whether a prompt shows any of it."""
        return self not in (DisplayForm.REPLACED, DisplayForm.DELETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span(Checked):
    """How a prompt shows the messages *first* to *last* (positions, both included), or not."""

    first: int
    last: int
    tier: Tier | None
    """The tier that shows them; None when they are not in the prompt."""

    form: DisplayForm = DisplayForm.FULL
    kept_chars: int | None = None
    """Characters that are left of a clipped message."""

    anchor: int | None = None
    """Position of the message after a recalled group that is kept in place."""

    source: str | None = None
    """Key of the summary that covers them."""

    times: int = 1
    """Number of equal messages, of which a recalled one is the shown copy; 1 without duplicates."""

    passages: tuple[TextRange, ...] = ()
    """
    The shown parts of a recalled message: start and end of characters of its `memory_text`, the end
    not included.
    """

    superseded_by: int | None = None
    """Position of the later message that replaced a recalled one, as its label says."""

    def __post_init__(self) -> None:
        check_fields(self)
        is_recalled = self.tier is Tier.RETRIEVED
        if (self.kept_chars if is_recalled else self.anchor) is not None:
            name = "kept_chars" if is_recalled else "anchor"
            tier = None if self.tier is None else self.tier.value
            raise InvalidInputError(
                f"Span.{name} is not a field of the tier {tier}: only messages of the tier "
                "retrieved have an anchor, and only others kept_chars"
            )
        if bool(self.passages) != (self.form is DisplayForm.PASSAGES):
            raise InvalidInputError(
                f"a Span of the form {self.form} has {len(self.passages)} passages: those of the "
                "form passages have at least one, and others none"
            )

    def explain(self) -> str:
        """Describe in words how these messages are shown."""
        where = "not shown" if self.tier is None else f"{self.tier} tier"
        how = "" if self.form is DisplayForm.FULL else f", {self.form}"
        how += characters(self.passages)
        how += "" if self.superseded_by is None else f", replaced by message {self.superseded_by}"
        via = "" if self.source is None else f", by summary {self.source}"
        return f"messages {self.first}-{self.last}: {where}{how}{via}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(ShortRepr):
    """
    A summary of the messages *first* to *last* of a branch.

    Immutable: another text is another summary. The layout of a prompt names the ones that it shows.
    """

    branch_id: BranchId
    first: int
    last: int
    level: int
    """0 for a summary of messages only, else 1 + the highest level among its inputs."""

    text: str
    author: str
    source_hash: str
    """Hash of its inputs."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_text("summary", self.text)

    @property
    def key(self) -> str:
        """Content hash of the summary, short enough for a log."""
        facts = (self.first, self.last, self.level, self.text, self.author, self.source_hash)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationRecord(Checked):
    """
    Messages that were candidates for the prompt but are not in it in full, and why.

    *first* and *last* are positions, both included. *num_tokens* is None for a range that was not
    read, such as the messages before a window that was rebuilt from its end.
    """

    branch_id: BranchId
    first: int
    last: int
    tier: Tier
    """The tier that dropped them."""

    reason: TruncationReason
    num_tokens: int | None
    room: int
    """Token limit of that tier in this prompt."""

    destination: str
    """Where they can be found; ``store`` means ``Session.messages(first, last)``."""

    assembly_id: AssemblyId | None = None
    created_at: datetime | None = None

    def explain(self) -> str:
        """Describe the truncated messages and their destination in words."""
        size = "not counted" if self.num_tokens is None else f"{self.num_tokens} tokens"
        return (
            f"messages {self.first}-{self.last} ({size}) {self.reason}: the {self.tier} tier had "
            f"room for {self.room} tokens; now in: {self.destination}"
        )


class PrefixBreak(StrEnum):
    """Why the prompt does not extend the previous one."""

    FIRST = "first prompt"
    BRANCH = "branch"
    """A subtask that could not extend its parent's prompt."""

    BUDGET = "budget"
    TEMPLATE = "template"
    PINS = "pin changed"
    COMPACTION = "compaction"
    RETRIEVED = "retrieved text"
    RESULT = "result came"
    """An open call now has its result in place of a synthetic one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse(Checked):
    """The common prefix of this prompt and the previous one of the same branch."""

    common_tokens: int
    """Length of the common prefix in tokens; its KV can be reused if it is still cached."""

    broken_by: PrefixBreak | None
    """Why the common prefix is shorter than the previous prompt; None if it is not."""

    detail: str = ""
    """Details, such as the keys of changed pins."""

    def explain(self) -> str:
        """Describe the common prefix in words."""
        why = "" if self.broken_by is None else f", then broken by: {self.broken_by}"
        what = f" ({self.detail})" if self.detail else ""
        return f"begins like the prompt before for {self.common_tokens} tokens{why}{what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(Checked):
    """
    The input of the model, and a record of its composition.

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
    """Truncations since the previous prompt; earlier ones are in the log."""

    summaries: tuple[Summary, ...]
    """The shown summaries, oldest first."""

    pins: tuple[tuple[str, int], ...]
    """Scope, key and version of each shown pin."""

    reuse: Reuse
    context: int
    reply: int
    fingerprint: str
    """Fingerprint of tokenizer and template."""

    assembly_id: AssemblyId | None = None
    recalled: tuple[RecalledHit, ...] = ()
    """The recalled messages, best first."""

    default_system: str | None = None
    """
    The default system text of the model's chat template, which is used without pins.

    Pins are a system message, which replaces it. None where the template has no such text.
    """

    warnings: tuple[str, ...] = ()
    """Problems that degrade the prompts of this branch, in words with numbers."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def prompt_hash(self) -> str:
        """SHA-256 over the token ids: equal for byte-identical prompts."""
        packed = struct.pack(f"<{len(self.token_ids)}I", *self.token_ids)
        return hashlib.sha256(packed).hexdigest()

    def explain(self) -> str:
        """
        Describe the shown and the truncated parts in words, one line each.

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
    """A log entry of a prompt: everything but the text."""

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
    """Return a read-only copy of *mapping* in the order of the tiers, without zeros."""
    return FrozenMapping({tier: mapping[tier] for tier in Tier if mapping.get(tier)})


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix of two sequences."""
    # Comparing slices is far faster than token by token; both as tuples: no list equals a tuple.
    one, other = tuple(one), tuple(other)
    same, most = 0, min(len(one), len(other))
    while same < most:
        middle = (same + most + 1) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            most = middle - 1
    return same
