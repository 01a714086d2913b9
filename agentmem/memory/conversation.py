"""What a session and a subtask have in common: one branch to write to and to answer on."""

from collections.abc import Sequence
from dataclasses import replace

from agentmem.config import Budget, Sampling
from agentmem.context import Assembler, Imbalance, check_conservation
from agentmem.errors import ConfigError, InvalidInputError
from agentmem.memory.loader import load_view
from agentmem.memory.replying import ReplyStream
from agentmem.memory.runtime import Runtime
from agentmem.protocols import GenerationRequest
from agentmem.types import (
    AssemblyInfo,
    BranchId,
    BranchInfo,
    Message,
    Origin,
    Part,
    Pin,
    PinScope,
    Prompt,
    Reply,
    Role,
    StoredMessage,
    Summary,
    TextPart,
    ToolCall,
    TruncationRecord,
)

_DEFAULT_SAMPLING = Sampling()


class Conversation:
    """A branch that can be written, assembled and answered. All state is in the store."""

    def __init__(self, runtime: Runtime, branch_id: BranchId) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._scope = runtime.scope
        self._branch_id = branch_id
        self._first_prompt: Prompt | None = None
        # What the model was given, without what another entry only goes on from.
        self._served: list[tuple[int, ...]] = []

    @property
    def branch(self) -> BranchInfo:
        """The branch as it is now."""
        return self._store.sessions.branch(self._scope, self._branch_id)

    def pin(
        self,
        key: str,
        text: str,
        *,
        scope: PinScope | str = PinScope.SESSION,
        expected_version: int | None = None,
    ) -> Pin:
        """
        Keep *text* in every prompt, byte for byte, until the pin is changed or removed.

        The same text again is no change. Changing a pin changes the beginning of the prompt, so
        the next reply computes its prefix anew.

        Raises:
            InvalidInputError: *key* or *text* is empty or cannot be stored.
            ConflictError: *expected_version* is given and the pin is at another one.
        """
        return self._store.pins.set(
            self._scope,
            self._branch_id,
            key,
            text,
            pin_scope=_pin_scope(scope),
            expected_version=expected_version,
        )

    def unpin(self, key: str, *, scope: PinScope | str = PinScope.SESSION) -> None:
        """Take a pin out of the prompts that follow; its versions stay in the store."""
        self._store.pins.remove(self._scope, self._branch_id, key, pin_scope=_pin_scope(scope))

    def pins(self) -> tuple[Pin, ...]:
        """Give the pins that the next prompt begins with, in its order."""
        return self._store.pins.visible(self._scope, self._branch_id)

    def append(  # noqa: PLR0913 - a message has as many fields
        self,
        role: Role | str,
        content: str | Sequence[Part] = (),
        *,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        name: str | None = None,
        client_key: str | None = None,
    ) -> StoredMessage:
        """
        Store one message at the end of this branch.

        The transcript stays legal: calls that are still open when the talk goes on get a
        synthetic result, and a result that no call asked for gets a synthetic call. With a
        *client_key* a retry is safe: the same key again gives the first result.

        Raises:
            InvalidInputError: an empty message, a field that does not go with the role, text that
                cannot be stored, or the system role, which is for pins.
            TranscriptError: a second result for one call.
            ConflictError: the branch has ended, or *client_key* was used for something else.
        """
        parts = (TextPart(text=content),) if isinstance(content, str) else tuple(content)
        message = Message(
            role=_role(role),
            parts=tuple(part for part in parts if part != TextPart(text="")),
            tool_calls=tuple(tool_calls),
            tool_call_id=tool_call_id,
            name=name,
        )
        return self._append(message, client_key=client_key)

    def _append(
        self, message: Message, *, client_key: str | None = None, origin: Origin = Origin.SAID
    ) -> StoredMessage:
        stored = self._store.messages.append(
            self._scope, self._branch_id, [message], client_key=client_key, origin=origin
        )
        return stored[-1]

    def messages(self, first: int = 1, last: int | None = None) -> tuple[StoredMessage, ...]:
        """Read what was said from position *first* to *last*, whatever prompts show of it."""
        return self._store.messages.read(self._scope, self._branch_id, first, last)

    def assemble(self, *, budget: Budget | None = None) -> Prompt:
        """
        Build the prompt for the state of now, and log it.

        The same state gives the same bytes, in this process or another.

        Raises:
            ContextOverflowError: pins and current turn alone are over the budget.
            ConfigError: there is nothing to count with.
        """
        budget = budget or self._runtime.budget
        assembler = Assembler(self._runtime.need_counter(), budget, self._runtime.policy)
        view, previous = load_view(self._runtime, self._branch_id, budget)
        prompt = assembler.assemble(view)
        if previous is not None and _is_same(prompt, previous):
            return replace(prompt, assembly_id=previous.id)
        return self._store.ledger.record(self._scope, prompt)

    def stream(
        self,
        text: str | None = None,
        *,
        sampling: Sampling | None = None,
        budget: Budget | None = None,
    ) -> ReplyStream:
        """
        Say *text* and answer it piece by piece; without *text*, answer what stands last.

        The message is stored before the prompt is assembled, and stays stored if that fails.

        Raises:
            ContextOverflowError: pins and current turn alone are over the budget.
            ConfigError: there is no model, or it cannot give what is asked.
        """
        model = self._runtime.need_model()
        budget = budget or self._runtime.budget
        sampling = _bounded(sampling or _DEFAULT_SAMPLING, budget)
        if text is not None:
            self.append(Role.USER, text)
        prompt = self.assemble(budget=budget)
        self._first_prompt = self._first_prompt or prompt
        self._keep_served(prompt.token_ids)
        request = GenerationRequest(
            token_ids=prompt.token_ids,
            sampling=sampling,
            cache_salt=self._runtime.cache_salt,
        )
        return ReplyStream(prompt, model.stream(request), self._save_answer)

    def reply(
        self,
        text: str | None = None,
        *,
        sampling: Sampling | None = None,
        budget: Budget | None = None,
    ) -> Reply:
        """
        Say *text*, wait for the whole answer and store it; see `stream`.

        Raises:
            ContextOverflowError: pins and current turn alone are over the budget.
            ConfigError: there is no model, or it cannot give what is asked.
        """
        stream = self.stream(text, sampling=sampling, budget=budget)
        for _ in stream:
            pass
        return stream.reply

    def _save_answer(self, message: Message) -> StoredMessage:
        if message.generated is not None:
            self._keep_served(self._served[-1] + message.generated.token_ids)
        return self._append(message)

    def _keep_served(self, token_ids: tuple[int, ...]) -> None:
        if self._served and token_ids[: len(self._served[-1])] == self._served[-1]:
            self._served.pop()
        self._served.append(token_ids)

    def truncations(self) -> tuple[TruncationRecord, ...]:
        """Read the log of this branch: what left its prompts, when, why, and where it is now."""
        return self._store.ledger.truncations(
            self._scope, self.branch.session_id, branch_id=self._branch_id
        )

    def assemblies(self) -> tuple[AssemblyInfo, ...]:
        """Read the account of each prompt of this branch, oldest first."""
        every = self._store.ledger.assemblies(self._scope, self.branch.session_id)
        return tuple(assembly for assembly in every if assembly.branch_id == self._branch_id)

    def summaries(self) -> tuple[Summary, ...]:
        """Read all summaries that prompts of this branch showed first, by what they cover."""
        return self._store.ledger.summaries(self._scope, self._branch_id)

    def restore(self, record: TruncationRecord) -> tuple[StoredMessage, ...]:
        """Read the messages, in full, that *record* names as left out or cut."""
        return self.messages(record.first, record.last)

    def check(self) -> tuple[Imbalance, ...]:
        """Check that every message of every prompt is shown or on record; empty is good."""
        assemblies = self.assemblies()
        keys = {span.source for a in assemblies for span in a.layout if span.source is not None}
        there = self._store.ledger.summaries(self._scope, self._branch_id, sorted(keys))
        return check_conservation(assemblies, self.truncations(), {s.key for s in there})


def _bounded(sampling: Sampling, budget: Budget) -> Sampling:
    """Bound the answer by the reply reserve, which the prompt has left free for it."""
    if sampling.max_tokens is not None and sampling.max_tokens > budget.reply:
        raise ConfigError(
            f"max_tokens is {sampling.max_tokens} but the budget keeps {budget.reply} tokens for "
            "the reply: lower max_tokens or raise Budget.reply"
        )
    return replace(sampling, max_tokens=sampling.max_tokens or budget.reply)


def _is_same(prompt: Prompt, previous: AssemblyInfo) -> bool:
    return (prompt.head, prompt.layout, prompt.prompt_hash) == (
        previous.head,
        previous.layout,
        previous.prompt_hash,
    )


def _role(role: Role | str) -> Role:
    try:
        return Role(role)
    except ValueError as error:
        names = ", ".join(Role)
        raise InvalidInputError(f"there is no role {role!r}: it is one of {names}") from error


def _pin_scope(scope: PinScope | str) -> PinScope:
    try:
        return PinScope(scope)
    except ValueError as error:
        names = ", ".join(PinScope)
        raise InvalidInputError(f"there is no pin scope {scope!r}: one of {names}") from error
