"""Answers a message of a branch: prompt, request to the model, and storing the answer once."""

import hashlib
from dataclasses import dataclass

from agentmem.config import Budget
from agentmem.errors import ConflictError
from agentmem.memory.branch_writer import BranchWriter
from agentmem.memory.find_answer import find_answer, give_again
from agentmem.memory.reply_options import CheckedOptions
from agentmem.memory.reply_stream import ReplyStream
from agentmem.memory.user_runtime import Runtime
from agentmem.protocols import GenerationRequest, split_answer
from agentmem.types import BranchId, Message, Origin, Prompt, StoredMessage


class ServedPrompts:
    """Token ids that a model was given for one branch, without prefixes of others."""

    def __init__(self) -> None:
        self.first: Prompt | None = None
        self.token_ids: list[tuple[int, ...]] = []

    def begin(self, prompt: Prompt) -> None:
        """Record *prompt*, which a model is given now."""
        self.first = self.first or prompt
        self.add(prompt.token_ids)

    def add(self, token_ids: tuple[int, ...]) -> None:
        """Record *token_ids*, in place of the last ones if these are a prefix."""
        if self.token_ids and token_ids[: len(self.token_ids[-1])] == self.token_ids[-1]:
            self.token_ids.pop()
        self.token_ids.append(token_ids)


class Replier:
    """
    Answers on the branches of one conversation.

    Args:
        runtime: the shared state of the user's conversations.
        writer: stores answers and assembles prompts.
        depth: nesting depth of a subtask. Cached blocks of deeper subtasks are evicted first, so
            that a subtask does not evict the prefix of its parent.
        served: where the prompts of a subtask are recorded; None to keep none.
    """

    def __init__(
        self,
        runtime: Runtime,
        writer: BranchWriter,
        *,
        depth: int = 0,
        served: ServedPrompts | None = None,
    ) -> None:
        self._runtime = runtime
        self._writer = writer
        self._depth = depth
        self._served = served

    def stream(
        self, branch_id: BranchId, question: "Question", asks: CheckedOptions
    ) -> ReplyStream:
        """Assemble the prompt of the branch and stream the answer to its last message."""
        model = self._runtime.need_model()
        prompt = self._writer.assemble_and_look_ahead(branch_id, asks.budget, asks.wanted)
        if self._served is not None:
            self._served.begin(prompt)
        chunks = model.stream(self._request(prompt, asks))
        answer = NewAnswer(
            runtime=self._runtime,
            writer=self._writer,
            prompt=prompt,
            question=question,
            served=self._served,
        )
        return self._runtime.replies.add(ReplyStream(prompt, chunks, answer))

    def give_again(self, branch_id: BranchId, budget: Budget, given: StoredMessage) -> ReplyStream:
        """Stream the stored answer *given*, without the model."""
        prompt, chunks = give_again(self._runtime, branch_id, budget, given)
        return ReplyStream(prompt, chunks, StoredAnswer(given))

    def _request(self, prompt: Prompt, asks: CheckedOptions) -> GenerationRequest:
        return GenerationRequest(
            token_ids=prompt.token_ids,
            sampling=asks.sampling,
            cache_salt=self._runtime.cache_salt,
            priority=asks.priority,
            timeout_s=asks.timeout_s,
            cache_priority=-self._depth,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The message to answer, None for the last one, and the key that makes a retry idempotent."""

    asked: StoredMessage | None = None
    client_key: str | None = None

    def find_answer(self, runtime: Runtime, branch_id: BranchId) -> StoredMessage | None:
        """Return the answer that an earlier call with this key has stored, if any."""
        if self.asked is None or self.client_key is None:
            return None
        answer = find_answer(runtime, branch_id, self.asked)
        if answer is None:
            runtime.store.messages.close_calls(runtime.scope, branch_id)
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAnswer:
    """An answer that is being generated: stored on its branch, even after a switch of lines."""

    runtime: Runtime
    writer: BranchWriter
    prompt: Prompt
    question: Question
    served: ServedPrompts | None

    def split(self, text: str) -> tuple[str, str]:
        """Separate reasoning from the answer."""
        return split_answer(self.runtime.counter, text, is_generated=True)

    def store(self, message: Message, origin: Origin) -> StoredMessage:
        """Store the answer; of two concurrent ones to one key, return the first."""
        branch_id, client_key = self.prompt.branch_id, self.question.client_key
        if message.generated is not None and self.served is not None:
            self.served.add(self.prompt.token_ids + message.generated.token_ids)
        if client_key is None or origin is Origin.PARTIAL:
            return self.writer.add(branch_id, message, origin)
        key = f"answer to {hashlib.sha256(client_key.encode()).hexdigest()}"
        try:
            return self.writer.add(branch_id, message, origin, client_key=key)
        except ConflictError:
            first = self.question.find_answer(self.runtime, branch_id)
            if first is None:
                raise
            return first

    def apply_policy(self, stored: StoredMessage) -> None:
        """
        Set the policy's pin of the stored answer.

        Raises:
            ConfigError: the policy failed; the answer is stored.
        """
        self.writer.apply_policy(stored)


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer that is stored already."""

    stored: StoredMessage

    def split(self, text: str) -> tuple[str, str]:
        """Return *text* as the answer: its reasoning was separated before it was stored."""
        return "", text

    def store(self, message: Message, origin: Origin) -> StoredMessage:  # noqa: ARG002 - stored once
        """Return the stored message."""
        return self.stored

    def apply_policy(self, stored: StoredMessage) -> None:
        """Do nothing: the pin was set when the answer was stored."""
