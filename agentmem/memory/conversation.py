"""Conversation on one branch: write to it, assemble prompts, and reply."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Unpack

from agentmem.config import Budget
from agentmem.errors import ConflictError, InvalidInputError
from agentmem.memory.aio import AsyncReplyStream, finished, in_thread
from agentmem.memory.arguments import calls_of, parts_said, pin_scope_of, role_of
from agentmem.memory.background_jobs import CompactionState
from agentmem.memory.branch_writer import BranchWriter
from agentmem.memory.compact_ahead import compaction_key
from agentmem.memory.find_answer import make_answerable
from agentmem.memory.history import History
from agentmem.memory.recall import wanted_recall
from agentmem.memory.replier import Question, Replier, ServedPrompts
from agentmem.memory.reply_options import ReplyOptions, checked_options
from agentmem.memory.reply_stream import ReplyStream
from agentmem.memory.user_runtime import Runtime
from agentmem.protocols import Hit
from agentmem.types import (
    BranchId,
    BranchState,
    Message,
    Part,
    Pin,
    PinScope,
    Prompt,
    Replacement,
    Reply,
    Role,
    StoredMessage,
    ToolCall,
)


class Conversation(History):
    """
    A branch that is read by its `History`, written by its writer and answered by its replier.

    Args:
        runtime: the shared state of the user's conversations.
        branch_id: the branch.
        depth: nesting depth of a subtask.
        served: where the prompts of a subtask are recorded; None to keep none.
    """

    def __init__(
        self,
        runtime: Runtime,
        branch_id: BranchId,
        *,
        depth: int = 0,
        served: ServedPrompts | None = None,
    ) -> None:
        super().__init__(runtime, branch_id)
        self._depth = depth
        self._writer = BranchWriter(runtime)
        self._replier = Replier(runtime, self._writer, depth=depth, served=served)

    def pin(
        self,
        key: str,
        text: str,
        *,
        scope: PinScope | str | None = None,
        expected_version: int | None = None,
    ) -> Pin:
        """
        Pin *text* to every prompt, byte for byte, until the pin is changed or removed.

        Without a *scope* a session's pin is the session's and a subtask's is the subtask's, without
        effect on the parent. It replaces an automatic pin of the same key. Pinning the same text
        again is a no-op. A changed pin changes the start of the prompt, so the next reply
        recomputes its prefix.

        Raises:
            InvalidInputError: *key* or *text* is empty or cannot be stored.
            ConflictError: the pin is not at *expected_version*, or this subtask has ended.
        """
        self._require_open()
        return self._store.pins.set(
            self._scope,
            self._branch_id,
            key,
            text,
            pin_scope=pin_scope_of(scope or self._default_scope),
            expected_version=expected_version,
        )

    def unpin(self, key: str, *, scope: PinScope | str | None = None) -> None:
        """
        Remove a pin from later prompts; its versions stay in the store.

        Without a *scope* it is that of the session and of its line, or the user's if there is no
        other; in a subtask the subtask's.

        Raises:
            PinNotFoundError: it was never set in that scope.
            ConflictError: this subtask has ended.
        """
        self._require_open()
        pin_scope = None if scope is None else pin_scope_of(scope)
        self._store.pins.remove(self._scope, self._branch_id, key, pin_scope=pin_scope)

    def undo_pin(self, key: str, *, scope: PinScope | str | None = None) -> Pin:
        """
        Restore the text of a pin before its last change, as a new version.

        Without a *scope* it is the most recently changed of those that `unpin` would remove.

        Raises:
            PinNotFoundError: it was never set in that scope.
        """
        self._require_open()
        pin_scope = None if scope is None else pin_scope_of(scope)
        return self._store.pins.undo(self._scope, self._branch_id, key, pin_scope=pin_scope)

    def _require_open(self) -> None:
        branch = self.branch
        if branch.state is not BranchState.OPEN:
            raise ConflictError(f"the subtask {branch.name!r} is {branch.state} and read-only")

    def append(  # noqa: PLR0913 - a message has as many fields
        self,
        role: Role | str,
        content: str | Sequence[Part] | None = (),
        *,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        name: str | None = None,
        extra: Any = None,
        client_key: str | None = None,
        created_at: datetime | None = None,
    ) -> StoredMessage:
        """
        Append one message to this branch.

        The transcript stays valid: open calls get a synthetic result when the conversation
        continues, and a result without a call a synthetic call. A late result is kept: prompts show
        it in place of the synthetic one if none has shown that yet, else as a later message that
        names the call. A *client_key* makes retries idempotent: the same key returns the first
        result. *extra* is any JSON value, stored with the message and not shown to models.
        *created_at* is the original time of an imported message, for display and search; the order
        is that of appending. Reasoning in an assistant's text, in the model's tags, becomes a
        `ReasoningPart`.

        Raises:
            InvalidInputError: an empty user message, a field that does not match the role, text
                that cannot be stored, the system role (pins), a *created_at* without a time zone.
            TranscriptError: a second result for a call, or one for no call while others wait.
            ConflictError: the branch has ended, or *client_key* was used for other content.
            ConfigError: the policy's ``auto_pin`` failed; the message is stored.
        """
        message = Message(
            role=role_of(role),
            parts=parts_said(role, content, self._runtime.counter),
            tool_calls=calls_of(tool_calls),
            tool_call_id=tool_call_id,
            name=name,
            extra=extra,
        )
        added = self._store.messages.append_once(
            self._scope,
            self._branch_id,
            [message],
            client_key=client_key,
            created_at=self._runtime.moment(created_at),
        )
        self._runtime.notify_appended()
        self._writer.apply_policy(added.stored[-1], is_repeated=added.is_repeated)
        return added.stored[-1]

    def delete_message(self, position: int) -> None:
        """
        Permanently delete the content of a message; its position and role are kept.

        The ids and names of its calls are kept too, so that the transcript is valid. Deleted with
        it are the text of its automatic pin in all versions, the texts of summaries that cover it,
        its replacements, its vectors, and the user's cached keys and values. Quotations in answers
        are other messages. In a subtask an inherited message is deleted in the parent.

        Raises:
            SessionNotFoundError: no message has that position.
        """
        gone = self._store.deletion.message(self._scope, self._branch_id, position)
        self._runtime.forget_cached(gone.messages)

    def supersede(self, old: int, new: int) -> Replacement:
        """
        Mark the message at position *old* as replaced by the later one at position *new*.

        Both stay as they are. Where *old* is recalled, it is shown as replaced, after *new*. It is
        an agent's tool as it is: both arguments are positions. The same call again is a no-op, and
        one with another *new* replaces the mark.

        Raises:
            InvalidInputError: *new* is not after *old*, or one is not a position.
            SessionNotFoundError: no message has that position.
            ConflictError: one of the messages was deleted, or this subtask has ended.
        """
        self._require_open()
        return self._store.replacements.add(self._scope, self._branch_id, old, new)

    def unsupersede(self, old: int) -> Replacement:
        """
        Remove the mark of the message at position *old*, and return what it was.

        An inherited mark is removed from the branch that it is of, and so from all that inherit it.

        Raises:
            ReplacementNotFoundError: no message replaces it.
            ConflictError: this subtask has ended.
        """
        self._require_open()
        return self._store.replacements.remove(self._scope, self._branch_id, old)

    def delete_pin(self, key: str, *, scope: PinScope | str | None = None) -> None:
        """
        Permanently delete a pin with the texts of all its versions.

        Without a *scope* it is that of the session and of its line, or the user's if there is no
        other; in a subtask the subtask's. `unpin` only removes it from later prompts.

        Raises:
            PinNotFoundError: it was never set in that scope.
        """
        pin_scope = None if scope is None else pin_scope_of(scope)
        self._store.deletion.pin(self._scope, self._branch_id, key, pin_scope=pin_scope)
        self._runtime.forget_cached(())

    def assemble(
        self,
        *,
        query: str | None = None,
        budget: Budget | None = None,
        hits: Sequence[Hit] | None = None,
    ) -> Prompt:
        """
        Assemble the prompt of the current state, and log it.

        Deterministic: the same state gives a byte-identical prompt, in any process; the vectors
        embedded so far are part of the state. With a retriever, messages that match *query*, by
        default the user's last message, are recalled: the best ones are shown before the current
        turn, within their share of the budget, unless the window shows them. *hits* are messages to
        recall in place of a search; ``()`` recalls nothing.

        Raises:
            ContextOverflowError: pins and current turn alone exceed the budget.
            ConfigError: there is no token counter, or a *query* without a retriever.
            InvalidInputError: *query* and *hits* are given, or there are no messages: pins alone
                are not a prompt.
        """
        wanted = wanted_recall(self._runtime, query, hits)
        return self._writer.assemble_and_look_ahead(
            self._branch_id, self._runtime.budget_for(budget), wanted
        )

    def compact(self, *, budget: Budget | None = None) -> Prompt:
        """
        Slide the window to its low-water mark now, and compact the messages that leave it.

        For idle times: with summaries by a model, the next reply then does not wait for one.
        Messages may be appended meanwhile, also by other processes.

        Raises:
            ContextOverflowError: pins and current turn alone are over the budget.
            ConfigError: there is no token counter.
            InvalidInputError: there are no messages yet.
        """
        budget = self._runtime.budget_for(budget)
        prompt = self._writer.assemble(self._branch_id, budget, (), must_slide=True)
        self._runtime.background.settle(compaction_key(self._runtime, self._branch_id, budget))
        return prompt

    def compaction_state(self, *, budget: Budget | None = None) -> CompactionState:
        """Return the state of background compaction of this branch, and its last error."""
        budget = self._runtime.budget_for(budget)
        return self._runtime.background.state(
            compaction_key(self._runtime, self._branch_id, budget)
        )

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
        self._runtime.need_model()
        asks = checked_options(self._runtime, **options)
        with self._runtime.replies.beginning():
            question = self._ask(text, client_key)
            given = question.find_answer(self._runtime, self._branch_id)
            if given is not None:
                return self._replier.give_again(self._branch_id, asks.budget, given)
            return self._replier.stream(self._branch_id, question, asks)

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

    def _ask(self, text: str | None, client_key: str | None) -> Question:
        """Store the message to answer, or close the calls before the last one."""
        if text is not None:
            asked = self.append(Role.USER, text, client_key=client_key)
            return Question(asked=asked, client_key=client_key)
        if client_key is not None:
            raise InvalidInputError(
                "a client_key makes appending a text idempotent: pass a text too"
            )
        make_answerable(self._runtime, self._branch_id)
        return Question()

    apin = in_thread(pin)
    aunpin = in_thread(unpin)
    aundo_pin = in_thread(undo_pin)
    aappend = in_thread(append)
    aassemble = in_thread(assemble)
    acompact = in_thread(compact)
    acompaction_state = in_thread(compaction_state)
    adelete_message = in_thread(delete_message)
    adelete_pin = in_thread(delete_pin)
    asupersede = in_thread(supersede)
    aunsupersede = in_thread(unsupersede)
