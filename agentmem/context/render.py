"""Count and render drafts with the model's template."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from agentmem.context.arrange_results import UNSAID
from agentmem.context.draft import Draft, RecalledGroup
from agentmem.context.prompt_messages import MessageGroup
from agentmem.context.recall import recall_message
from agentmem.protocols import RenderedChat, TokenCounter
from agentmem.types import Message, Role, TextPart, Tier, common_prefix
from agentmem.types.lines import line_of

_UNSAID: Final = Message(role=Role.USER, parts=(TextPart(text=UNSAID),))


def is_said(messages: Sequence[Message]) -> bool:
    """Whether there are messages besides the system's, as a prompt must have."""
    return any(message.role is not Role.SYSTEM for message in messages)


class Renderer:
    """
    A caching `TokenCounter` for the assembly of one prompt.

    The same list of messages is rendered repeatedly during an assembly, so renders are cached until
    it ends, together with the messages, which are compared by identity.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._rendered: dict[
            tuple[tuple[int, ...], bool], tuple[tuple[Message, ...], RenderedChat]
        ] = {}
        self._lines: dict[int, tuple[Message, str]] = {}

    def line(self, message: Message) -> str:
        """Return the deduplication key of *message*."""
        known = self._lines.get(id(message))
        if known is None:
            known = self._lines[id(message)] = (message, line_of(message))
        return known[1]

    @property
    def fingerprint(self) -> str:
        return self._counter.fingerprint

    def render(self, messages: Sequence[Message], *, generate: bool = True) -> RenderedChat:
        key = (tuple(map(id, messages)), generate)
        known = self._rendered.get(key)
        if known is None:
            held = tuple(messages)
            known = (held, self._counter.render(held, add_generation_prompt=generate))
            self._rendered[key] = known
        return known[1]

    def length(self, messages: Sequence[Message], *, generate: bool = False) -> int:
        """Return the tokens of *messages* as a separate transcript; 0 for none."""
        if not is_said(messages):
            # Strict templates reject a list without a user or an answer, so it is not rendered.
            return sum(map(self._counter.count, messages))
        return len(self.render(messages, generate=generate).token_ids)

    def size(self, draft: Draft) -> int:
        """Return the tokens of the whole prompt."""
        return self.length(draft.messages, generate=True)

    def count(self, message: Message) -> int:
        return self._counter.count(message)

    def count_unit(self, unit: MessageGroup, draft: Draft) -> int:
        """Return the tokens that *unit* of *draft* adds to a transcript, as an estimate."""
        return sum(self._counter.count(message) for message in draft.alone(unit))

    def count_groups(self, groups: Sequence[RecalledGroup]) -> int:
        """Return the tokens of kept groups of recalled messages."""
        messages = [message for group in groups for message in recall_message(group.hits)]
        return sum(self._counter.count(message) for message in messages)

    def count_text(self, text: str) -> int:
        """Return the tokens of *text* as a separate message, an upper bound."""
        if not text.strip():
            return 0
        return self._counter.count(Message(role=Role.USER, parts=(TextPart(text=text),)))

    def shared(
        self, token_ids: Sequence[int], messages: Sequence[Message], *, generate: bool = False
    ) -> int:
        """Return the length of the common prefix of *token_ids* and the render of *messages*."""
        if not messages:
            return 0
        if not is_said(messages):
            whole = self.render([*messages, _UNSAID], generate=generate).token_ids
            return min(self.length(messages), common_prefix(token_ids, whole))
        return common_prefix(token_ids, self.render(messages, generate=generate).token_ids)

    def tiers(self, draft: Draft, total: int) -> dict[Tier, int]:
        """
        Attribute each of *total* tokens to one tier.

        Boundaries are where the render of a longer list extends that of a shorter one, so that the
        numbers add up to the prompt even where a template merges or rewrites.
        """
        own = self._own(draft)
        recent, current = draft.in_place
        parts = (
            (Tier.PINNED, draft.system),
            (Tier.SUMMARY, draft.summary),
            (Tier.RECENT, recent),
            (Tier.RETRIEVED, draft.recalled),
            (Tier.CURRENT, current),
        )
        tiers: dict[Tier, int] = {}
        num_so_far, end = 0, own
        for tier, messages in parts:
            num_so_far += len(messages)
            now = self._until(draft, num_so_far) if messages else end
            tiers[tier] = now - end
            end = now
        tiers[Tier.TEMPLATE] = own + total - end
        for group in draft.groups:
            tier = Tier.CURRENT if group.anchor == draft.anchor else Tier.RECENT
            # Where a template merges messages, a group may take fewer tokens than separately.
            size = min(self.count_groups([group]), tiers[tier])
            tiers[tier] -= size
            tiers[Tier.RETRIEVED] += size
        return tiers

    def _own(self, draft: Draft) -> int:
        """Return the tokens of the template's default system text, without pins."""
        if draft.system or not draft.messages:
            return 0
        alone = _first_round(draft.messages)
        return max(0, self.length(alone) - sum(map(self._counter.count, alone)))

    def _until(self, draft: Draft, number: int) -> int:
        """Return the tokens of the first *number* messages of *draft* as a transcript."""
        if number == 0:
            return 0
        ends = self.render(draft.messages).ends
        if ends is not None:
            return ends[number - 1]
        begin, rest = draft.messages[:number], _first_round(draft.messages[number:])
        if is_said(begin):
            return self.length(begin)
        return max(0, self.length([*begin, *rest]) - sum(map(self._counter.count, rest)))


def _first_round(messages: Sequence[Message]) -> list[Message]:
    """Return the first of *messages*, with the results of its calls: a valid transcript."""
    rest = takewhile(lambda message: message.role is Role.TOOL, messages[1:])
    return [*messages[:1], *rest]
