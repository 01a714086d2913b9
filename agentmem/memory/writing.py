"""One branch to write to, and to make prompts of."""

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
from agentmem.memory.ahead import compaction_key, look_ahead
from agentmem.memory.aio import in_thread
from agentmem.memory.arguments import (
    calls_of,
    parts_said,
    pin_scope_of,
    role_of,
    said,
)
from agentmem.memory.background import CompactionState
from agentmem.memory.erasing import Erasing
from agentmem.memory.loader import is_same, load_view, sources_of
from agentmem.memory.recalling import Wanted, is_whole, leaves_out, recall_for, wanted_recall
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
"""How often a prompt is assembled again because another process has logged one meanwhile."""


class Writing(Erasing):
    """A branch that can be written and assembled. All state is in the store."""

    def pin(
        self,
        key: str,
        text: str,
        *,
        scope: PinScope | str | None = None,
        expected_version: int | None = None,
    ) -> Pin:
        """
        Keep *text* in every prompt, byte for byte, until the pin is changed or removed.

        Without a *scope* a session's pin is the session's and a subtask's its own, so that it
        changes nothing for its parent. It takes the place of one that the policy made of a message
        under the same key. The same text again is no change. A changed pin changes the beginning
        of the prompt, so the next reply computes its prefix anew.

        Raises:
            InvalidInputError: *key* or *text* is empty or cannot be stored.
            ConflictError: *expected_version* is given and the pin is at another one, or this
                subtask has ended.
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
        Take a pin out of the prompts that follow; its versions stay in the store.

        Without a *scope* it is that of the session and of its own line, or the user's if there is
        no other; in a subtask its own.

        Raises:
            PinNotFoundError: it was never set there.
            ConflictError: this subtask has ended.
        """
        self._require_open()
        pin_scope = None if scope is None else pin_scope_of(scope)
        self._store.pins.remove(self._scope, self._branch_id, key, pin_scope=pin_scope)

    def undo_pin(self, key: str, *, scope: PinScope | str | None = None) -> Pin:
        """
        Bring back what the pin said before its last change, as a new version.

        Without a *scope* it is, of those that `unpin` would take out, the one that was changed
        last.

        Raises:
            PinNotFoundError: it was never set there.
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
        Store one message at the end of this branch.

        The transcript stays legal: calls that are still open when the talk goes on get a synthetic
        result, and a result that no call asked for a synthetic call. A result that comes after its
        call was closed is kept: prompts show it in the place of the synthetic one if none has
        shown that yet, else as a later message that names the call. With a *client_key* a retry is
        safe: the same key again gives the first result. *extra* is any JSON value that comes back
        with the message as it is, and that no model reads. *created_at* is when it was said, if
        that was not now but elsewhere and earlier: it is shown and searched by; the order stays
        that of appending. Thoughts in an assistant's text, marked as the model marks them, become
        a `ReasoningPart`.

        Raises:
            InvalidInputError: an empty user message, a field that does not go with the role, text
                that cannot be stored, the system role (pins), a *created_at* without a time zone.
            TranscriptError: a second result for a call, or one for no call while others wait.
            ConflictError: the branch has ended, or *client_key* was used for something else.
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
        self._pin_what_is_to_stay(added.stored[-1], is_repeated=added.is_repeated)
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

    def _pin_what_is_to_stay(self, stored: StoredMessage, *, is_repeated: bool = False) -> None:
        auto_pin = self._runtime.policy.auto_pin
        if auto_pin is None:
            return
        branch = self._store.sessions.branch(self._scope, stored.branch_id)
        # What a line begins with takes the place of an earlier message, and is no other task.
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
        Build the prompt for the state of now, and log it.

        The same state gives the same bytes, in this process or another; what a retriever has
        embedded so far is a part of the state. With a retriever, messages that fit *query*, by
        default what the user said last, are recalled: the best of them stand before the current
        turn, within their share of the budget, if the window does not show them anyway. *hits* are
        such messages, found by other means; ``()`` recalls nothing.

        Raises:
            ContextOverflowError: pins and current turn alone are over the budget.
            ConfigError: there is nothing to count with, or a *query* and no retriever.
            InvalidInputError: *query* and *hits* are given, or nothing has been said yet, and pins
                alone are no prompt.
        """
        wanted = wanted_recall(self._runtime, query, hits)
        return self._assemble_and_look_ahead(self._runtime.budget_for(budget), wanted)

    def compact(self, *, budget: Budget | None = None) -> Prompt:
        """
        Slide the window to its low-water mark now, and compact what leaves it.

        For a quiet moment: with a summarizer that asks a model, the next reply then does not wait
        for it. Messages may be appended meanwhile, also by other processes.

        Raises:
            ContextOverflowError: pins and current turn alone are over the budget.
            ConfigError: there is nothing to count with.
            InvalidInputError: nothing has been said yet.
        """
        budget = self._runtime.budget_for(budget)
        prompt = self._assemble(budget, (), must_slide=True)
        self._runtime.background.settle(compaction_key(self._runtime, self._branch_id, budget))
        return prompt

    def compaction_state(self, *, budget: Budget | None = None) -> CompactionState:
        """Return the state of background compaction of this branch, and why the last one failed."""
        budget = self._runtime.budget_for(budget)
        return self._runtime.background.state(
            compaction_key(self._runtime, self._branch_id, budget)
        )

    def _assemble_and_look_ahead(self, budget: Budget, wanted: Wanted) -> Prompt:
        prompt = self._assemble(budget, wanted)
        look_ahead(self._runtime, self._branch_id, budget, prompt)
        return prompt

    def _assemble(self, budget: Budget, wanted: Wanted, *, must_slide: bool = False) -> Prompt:
        """Load, decide, log; and look again when the log has gone on meanwhile."""
        assembler = Assembler(self._runtime.need_counter(), budget, self._runtime.policy)
        for attempt in range(_MAX_ATTEMPTS):
            view, previous = load_view(self._runtime, self._branch_id, budget)
            view = replace(view, must_slide=must_slide)
            whole = is_whole(self._runtime, view, budget)
            recalled = recall_for(self._runtime, view, budget, wanted, is_whole=whole)
            prompt = assembler.assemble(said(recalled))
            if whole and leaves_out(prompt):
                # It was not all shown after all, as behind large pins: now there is what to recall.
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
                # A writer that retries at another time than the others gets through.
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
    """Log the warnings of *prompt* where they are new: at the start, or with other pins."""
    if prompt.reuse.broken_by not in (None, PrefixBreak.COMPACTION, PrefixBreak.RETRIEVED):
        for warning in prompt.warnings:
            line = "branch {branch_id}: " + warning.replace("{", "{{").replace("}", "}}")
            log(_log, logging.WARNING, "prompt_warning", line, branch_id=prompt.branch_id)
