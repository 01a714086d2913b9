"""Write access to a branch, and prompt assembly."""

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from agentmem.config import Budget
from agentmem.context import Assembler
from agentmem.errors import ConfigError, ConflictError
from agentmem.machine.logs import log
from agentmem.memory.aio import in_thread
from agentmem.memory.arguments import (
    calls_of,
    parts_said,
    pin_scope_of,
    role_of,
    said,
)
from agentmem.memory.background_jobs import CompactionState
from agentmem.memory.compact_ahead import compaction_key, look_ahead
from agentmem.memory.delete_messages import Erasing
from agentmem.memory.load_branch import is_same, load_view, sources_of
from agentmem.memory.recall import Wanted, is_whole, leaves_out, recall_for, wanted_recall
from agentmem.protocols import Hit
from agentmem.types import (
    BranchId,
    BranchState,
    Message,
    Origin,
    Part,
    Pin,
    PinScope,
    PrefixBreak,
    Prompt,
    Role,
    StoredMessage,
    ToolCall,
)

_log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 40
"""Maximum retries of an assembly after conflicts with concurrent ones."""


class Writing(Erasing):
    """A branch with write access and prompt assembly. All state is in the store."""

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
        self._apply_auto_pin(added.stored[-1], is_repeated=added.is_repeated)
        return added.stored[-1]

    def _add(
        self,
        branch_id: BranchId,
        message: Message,
        origin: Origin,
        *,
        client_key: str | None = None,
    ) -> StoredMessage:
        added = self._store.messages.append(
            self._scope, branch_id, [message], origin=origin, client_key=client_key
        )
        self._runtime.notify_appended()
        return added[-1]

    def _apply_auto_pin(self, stored: StoredMessage, *, is_repeated: bool = False) -> None:
        auto_pin = self._runtime.policy.auto_pin
        if auto_pin is None:
            return
        branch = self._store.sessions.branch(self._scope, stored.branch_id)
        # The first message of a line replaces an earlier one, and is not another task.
        is_first = stored.position == (1 if branch.is_line else branch.forked_at + 1)
        try:
            found = auto_pin.pin(stored, is_first=is_first)
            key, text = found or ("", "")
        except Exception as error:
            raise ConfigError(
                f"message {stored.position} is stored, but the policy's auto_pin has no key and "
                f"text for it: {type(error).__name__}: {error}"
            ) from error
        if found is not None:
            self._store.pins.set_automatic(
                self._scope,
                stored.branch_id,
                key,
                text,
                position=stored.position,
                is_repeated=is_repeated,
            )

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
        return self._assemble_and_look_ahead(self._runtime.budget_for(budget), wanted)

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
        prompt = self._assemble(budget, (), must_slide=True)
        self._runtime.background.settle(compaction_key(self._runtime, self._branch_id, budget))
        return prompt

    def compaction_state(self, *, budget: Budget | None = None) -> CompactionState:
        """Return the state of background compaction of this branch, and its last error."""
        budget = self._runtime.budget_for(budget)
        return self._runtime.background.state(
            compaction_key(self._runtime, self._branch_id, budget)
        )

    def _assemble_and_look_ahead(self, budget: Budget, wanted: Wanted) -> Prompt:
        prompt = self._assemble(budget, wanted)
        look_ahead(self._runtime, self._branch_id, budget, prompt)
        return prompt

    def _assemble(self, budget: Budget, wanted: Wanted, *, must_slide: bool = False) -> Prompt:
        """Load, assemble and log; retry if the log has changed concurrently."""
        assembler = Assembler(self._runtime.need_counter(), budget, self._runtime.policy)
        for attempt in range(_MAX_ATTEMPTS):
            view, previous = load_view(self._runtime, self._branch_id, budget)
            view = replace(view, must_slide=must_slide)
            whole = is_whole(self._runtime, view, budget)
            recalled = recall_for(self._runtime, view, budget, wanted, is_whole=whole)
            prompt = assembler.assemble(said(recalled))
            if whole and leaves_out(prompt):
                # Not everything was shown after all, as after large pins: now recall.
                prompt = assembler.assemble(recall_for(self._runtime, view, budget, wanted))
            if previous is not None and is_same(prompt, previous):
                return replace(prompt, assembly_id=previous.id)
            after = None if previous is None else previous.id
            try:
                recorded = self._store.prompt_log.record(
                    self._scope, prompt, after=after, sources=sources_of(view)
                )
            except ConflictError:
                if attempt == _MAX_ATTEMPTS - 1:
                    raise
                # Jitter, so that concurrent writers retry at different times.
                time.sleep(random.uniform(0, min(0.1, 0.002 * 2**attempt)))  # noqa: S311 - jitter
            else:
                _log_warnings(recorded)
                return recorded
        raise AssertionError("the loop returns or raises")

    apin = in_thread(pin)
    aunpin = in_thread(unpin)
    aundo_pin = in_thread(undo_pin)
    aappend = in_thread(append)
    aassemble = in_thread(assemble)
    acompact = in_thread(compact)
    acompaction_state = in_thread(compaction_state)


def _log_warnings(prompt: Prompt) -> None:
    """Log the warnings of *prompt* if they are new: at the start, or with other pins."""
    if prompt.reuse.broken_by not in (None, PrefixBreak.COMPACTION, PrefixBreak.RETRIEVED):
        for warning in prompt.warnings:
            line = "branch {branch_id}: " + warning.replace("{", "{{").replace("}", "}}")
            log(_log, logging.WARNING, "prompt_warning", line, branch_id=prompt.branch_id)
