"""A model of the store in plain Python: it scans lists where the store looks into an index."""

from dataclasses import dataclass, field, replace

from agentmem.errors import ConflictError, TranscriptError
from agentmem.store.lifecycle.deletion import DELETED
from agentmem.store.transcript.tool_calls import NO_RESULT
from agentmem.types import BranchState, Inherit, Origin, PinScope, ToolCall
from tests.builders import say


@dataclass
class ModelBranch:
    parent: "ModelBranch | None" = None
    forked_at: int = 0
    inherit: Inherit = Inherit.ALL
    own: list = field(default_factory=list)
    keys: dict = field(default_factory=dict)
    pins: dict = field(default_factory=dict)
    state: BranchState = BranchState.OPEN
    children: list = field(default_factory=list)

    def __post_init__(self):
        if self.parent is not None:
            self.parent.children.append(self)

    def view(self):
        """Pairs of a message and its origin, as the branch sees them."""
        inherited = self.parent.view()[: self.forked_at] if self.parent else []
        return inherited + self.own

    def talk(self):
        """Give the part of the view in which calls are looked for."""
        if self.parent is None or self.inherit is not Inherit.ALL:
            return list(self.own)
        hidden = len(self.parent.view()) - len(self.parent.talk())
        seen = self.parent.view()[: self.forked_at][hidden:]
        return seen + self.own

    def descends_from(self, other):
        return self is other or (self.parent is not None and self.parent.descends_from(other))

    def delete(self, position):
        if position <= self.forked_at:
            self.parent.delete(position)
            return
        said, _ = self.own[position - self.forked_at - 1]
        calls = tuple(ToolCall(id=call.id, name=call.name) for call in said.tool_calls)
        emptied = say(
            said.role,
            DELETED,
            tool_calls=calls,
            tool_call_id=said.tool_call_id,
            name=said.name if said.role == "tool" else None,
        )
        self.own[position - self.forked_at - 1] = (emptied, Origin.DELETED)

    def append(self, messages, origin, client_key):
        if client_key in self.keys:
            given, start, stop = self.keys[client_key]
            if given != (messages, origin):
                raise ConflictError
            return self.own[start:stop]
        if self.state is not BranchState.OPEN:
            raise ConflictError
        before = list(self.own)
        try:
            for message in messages:
                self._append_one(message, origin)
        except TranscriptError:
            self.own = before
            raise
        stored = self.own[len(before) :]
        if client_key is not None:
            self.keys[client_key] = ((messages, origin), len(before), len(self.own))
        return stored

    def _append_one(self, message, origin):
        waiting, answers, names = {}, {}, {}
        hidden = len(self.view()) - len(self.talk())
        for position, (said, how) in enumerate(self.talk(), hidden + 1):
            for made in said.tool_calls:
                waiting[made.id] = names[made.id] = made.name
            if said.tool_call_id is not None:
                waiting.pop(said.tool_call_id, None)
                answers[said.tool_call_id] = (how, position)
        if message.role == "tool":
            message, origin = self._result(message, origin, (waiting, answers, names))
        elif origin is not Origin.PROMOTED or message.tool_calls:
            for call_id, name in waiting.items():
                closing = say("tool", NO_RESULT, tool_call_id=call_id, name=name)
                self.own.append((closing, Origin.SYNTHETIC))
        self.own.append((message, origin))

    def _result(self, message, origin, calls):
        waiting, answers, names = calls
        call_id = message.tool_call_id
        if call_id not in waiting:
            how, position = answers.get(call_id, (None, 0))
            if origin is Origin.PROMOTED and (call_id in answers or waiting):
                return replace(message, name=message.name or names.get(call_id, "tool")), origin
            if how is Origin.SYNTHETIC:
                if origin is Origin.SAID:
                    origin = Origin.LATE if self._is_seen(position) else Origin.REPLACES
                return replace(message, name=message.name or names[call_id]), origin
            if call_id in answers or waiting:
                raise TranscriptError
            made = ToolCall(id=call_id, name=message.name or "tool")
            self.own.append((say("assistant", tool_calls=(made,)), Origin.SYNTHETIC))
            names[call_id] = made.name
        if origin is Origin.PROMOTED:
            message = replace(message, name=message.name or names[call_id])
        return message, origin

    def _is_seen(self, position):
        """Whether a prompt may have shown what is at *position*; none is logged here."""
        return position <= self.forked_at and self.inherit is not Inherit.ALL


@dataclass
class ModelPin:
    order: int
    versions: list = field(default_factory=list)


def visible_pins(branch, by_scope):
    """Give texts of the pins of *branch*; *by_scope* has those of the user and the session."""
    line, here = [], branch
    while here is not None:
        line.insert(0, here)
        here = here.parent
    groups = [by_scope[PinScope.USER], by_scope[PinScope.SESSION], *(item.pins for item in line)]
    seen = {}
    for group in groups:
        for key, pin in sorted(group.items(), key=lambda item: item[1].order):
            if pin.versions[-1] is not None:
                seen[key] = pin.versions[-1]
    return list(seen.values())
