"""Common base of sessions and subtasks: a branch with replies."""

import hashlib
from functools import partial
from typing import Unpack

from agentmem.config import Budget
from agentmem.errors import ConflictError, InvalidInputError
from agentmem.memory.aio import AsyncReplyStream, finished
from agentmem.memory.find_answer import find_answer, give_again, make_answerable
from agentmem.memory.reply_options import CheckedOptions, ReplyOptions, checked_options
from agentmem.memory.reply_stream import ReplyStream, Save
from agentmem.memory.user_runtime import Runtime
from agentmem.memory.writing import Writing
from agentmem.protocols import GenerationRequest, LanguageModel, split_answer
from agentmem.types import BranchId, Message, Origin, Prompt, Reply, Role, StoredMessage


class Conversation(Writing):
    """
    A branch that a model answers on. Only what it was given is kept here, to be discarded.

    Args:
        runtime: what all conversations of a user share.
        branch_id: the branch.
        depth: nesting level of subtasks. Deeper ones are evicted from the cache first, so that a
            parent's blocks outlive those of its subtasks.
    """

    def __init__(self, runtime: Runtime, branch_id: BranchId, *, depth: int = 0) -> None:
        super().__init__(runtime, branch_id)
        self._depth = depth
        self._first_prompt: Prompt | None = None
        # What the model was given, without what another entry only goes on from.
        self._served: list[tuple[int, ...]] = []

    def stream(
        self,
        text: str | None = None,
        *,
        client_key: str | None = None,
        **options: Unpack[ReplyOptions],
    ) -> ReplyStream:
        """
        Append *text* as the user and stream the answer; without *text*, answer the last message.

        The message is stored before the prompt is assembled, and stays stored after any error:
        `stream` without *text* then answers it. An interrupted answer is stored, and replaced by
        the next one in prompts. Open calls are closed with synthetic results first.

        A *client_key* makes retries idempotent: the same key and text return the stored answer
        without calling the model, or answer if there is none yet.

        Waiting requests start in order of *priority*, highest first. An answer without a token
        *timeout_s* seconds after the request is an error; one with tokens ends with those, is
        stored, and has `FinishReason.ABORT`.

        Raises:
            InvalidInputError: an invalid argument, or there are no messages yet; nothing was
                stored.
            TranscriptError: without *text*, if the last message is answered.
            ConflictError: *client_key* was used for another text, or the conversation continued.
            ContextOverflowError: pins and current turn alone exceed the budget.
            ConfigError: there is no model, or it does not support an option.
            AdmissionError: prompt and answer can never fit the model or its memory.
            QueueFullError: the queue of waiting requests is full.
            DeadlineError: timeout before the first token; raised by the iterator.
            StoreError: the memory is closed.
        """
        model = self._runtime.need_model()
        asks = checked_options(self._runtime, **options)
        with self._runtime.replies.beginning():
            asked, given = self._say(text, client_key)
            if given is not None:
                return self._give_again(given, asks.budget)
            prompt = self._assemble_and_look_ahead(asks.budget, asks.wanted)
            save = partial(self._save_answer, prompt.branch_id, asked=asked, client_key=client_key)
            return self._start(model, self._request(prompt, asks), prompt, save)

    def reply(
        self,
        text: str | None = None,
        *,
        client_key: str | None = None,
        **options: Unpack[ReplyOptions],
    ) -> Reply:
        """
        Append *text* as the user, wait for the answer and store it; arguments as for `stream`.

        An answer cut off by *timeout_s* has `FinishReason.ABORT`.

        Raises:
            InvalidInputError, TranscriptError, ConflictError: as `stream` does.
            ContextOverflowError, ConfigError: as `stream` does.
            AdmissionError, QueueFullError, DeadlineError: as `stream` does; *text* stays stored.
        """
        stream = self.stream(text, client_key=client_key, **options)
        for _ in stream:
            pass
        return stream.reply

    async def astream(
        self,
        text: str | None = None,
        *,
        client_key: str | None = None,
        **options: Unpack[ReplyOptions],
    ) -> AsyncReplyStream:
        """Async form of `stream`, for ``async for``; arguments and errors are the same."""
        stream = await finished(self.stream, text, client_key=client_key, **options)
        return AsyncReplyStream(stream)

    async def areply(
        self,
        text: str | None = None,
        *,
        client_key: str | None = None,
        **options: Unpack[ReplyOptions],
    ) -> Reply:
        """
        Async form of `reply`; the errors are the same.

        Cancellation ends the generation at the next chunk, for a queued reply the first one; the
        answer so far is stored.
        """
        async with await self.astream(text, client_key=client_key, **options) as stream:
            return await stream.finish()

    def _start(
        self, model: LanguageModel, request: GenerationRequest, prompt: Prompt, save: Save
    ) -> ReplyStream:
        chunks, done = model.stream(request), self._apply_auto_pin
        stream = ReplyStream(prompt, chunks, save, done, split=self._split)
        return self._runtime.replies.add(stream)

    def _request(self, prompt: Prompt, asks: CheckedOptions) -> GenerationRequest:
        """Return the request to the model, and record it."""
        self._first_prompt = self._first_prompt or prompt
        self._keep_served(prompt.token_ids)
        return GenerationRequest(
            token_ids=prompt.token_ids,
            sampling=asks.sampling,
            cache_salt=self._runtime.cache_salt,
            priority=asks.priority,
            timeout_s=asks.timeout_s,
            cache_priority=-self._depth,
        )

    def _split(self, text: str) -> tuple[str, str]:
        return split_answer(self._runtime.counter, text, is_generated=True)

    def _say(
        self, text: str | None, client_key: str | None
    ) -> tuple[StoredMessage | None, StoredMessage | None]:
        """Store the message to answer (None: the last one), and find its answer."""
        if text is not None:
            asked = self.append(Role.USER, text, client_key=client_key)
            return asked, self._answer_to(asked, client_key)
        if client_key is not None:
            raise InvalidInputError(
                "a client_key makes appending a text idempotent: pass a text too"
            )
        make_answerable(self._runtime, self._branch_id)
        return None, None

    def _give_again(self, given: StoredMessage, budget: Budget) -> ReplyStream:
        prompt, chunks = give_again(self._runtime, self._branch_id, budget, given)
        return ReplyStream(prompt, chunks, lambda *_: given, lambda _: None)

    def _answer_to(
        self, asked: StoredMessage | None, client_key: str | None
    ) -> StoredMessage | None:
        """Return the answer that an earlier call with this key has stored, if any."""
        if asked is None or client_key is None:
            return None
        answer = find_answer(self._runtime, self._branch_id, asked)
        if answer is None:
            self._store.messages.close_calls(self._scope, self._branch_id)
        return answer

    def _save_answer(
        self,
        branch_id: BranchId,
        message: Message,
        origin: Origin,
        *,
        asked: StoredMessage | None,
        client_key: str | None,
    ) -> StoredMessage:
        """Store an answer on its branch, even if the session has switched to another line."""
        if message.generated is not None:
            self._keep_served(self._served[-1] + message.generated.token_ids)
        if client_key is None or origin is Origin.PARTIAL:
            return self._add(branch_id, message, origin)
        # Of two concurrent answers to one message the first is stored, and returned by both.
        key = f"answer to {hashlib.sha256(client_key.encode()).hexdigest()}"
        try:
            return self._add(branch_id, message, origin, client_key=key)
        except ConflictError:
            first = self._answer_to(asked, client_key)
            if first is None:
                raise
            return first

    def _keep_served(self, token_ids: tuple[int, ...]) -> None:
        if self._served and token_ids[: len(self._served[-1])] == self._served[-1]:
            self._served.pop()
        self._served.append(token_ids)
