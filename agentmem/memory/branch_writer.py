"""Writes to branches: appends messages, sets automatic pins, assembles and logs prompts."""

import logging
from dataclasses import replace

from agentmem.config import Budget
from agentmem.context import Assembler
from agentmem.errors import ConfigError, ConflictError
from agentmem.machine.backoff import back_off
from agentmem.machine.logs import log
from agentmem.memory.arguments import said
from agentmem.memory.compact_ahead import look_ahead
from agentmem.memory.load_branch import is_same, load_view, sources_of
from agentmem.memory.recall import Wanted, is_whole, leaves_out, recall_for
from agentmem.memory.superseded import mark_replaced
from agentmem.memory.user_runtime import Runtime
from agentmem.types import BranchId, Message, Origin, PrefixBreak, Prompt, StoredMessage

_log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 40
"""Maximum retries of an assembly after conflicts with concurrent ones."""


class BranchWriter:
    """Write access to the branches of a user. All state is in the store."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._scope = runtime.scope

    def add(
        self,
        branch_id: BranchId,
        message: Message,
        origin: Origin,
        *,
        client_key: str | None = None,
    ) -> StoredMessage:
        """Append *message* to the branch."""
        added = self._store.messages.append(
            self._scope, branch_id, [message], origin=origin, client_key=client_key
        )
        self._runtime.notify_appended()
        return added[-1]

    def apply_policy(self, stored: StoredMessage, *, is_repeated: bool = False) -> None:
        """
        Mark what *stored* replaces, and set the pin that the policy makes of it, if any.

        Raises:
            ConfigError: the policy failed; the message is stored.
        """
        mark_replaced(self._runtime, stored)
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

    def assemble_and_look_ahead(
        self, branch_id: BranchId, budget: Budget, wanted: Wanted
    ) -> Prompt:
        """Assemble, and start background compaction if the window is nearly full."""
        prompt = self.assemble(branch_id, budget, wanted)
        look_ahead(self._runtime, branch_id, budget, prompt)
        return prompt

    def assemble(
        self, branch_id: BranchId, budget: Budget, wanted: Wanted, *, must_slide: bool = False
    ) -> Prompt:
        """Load, assemble and log; retry if the log has changed concurrently."""
        assembler = Assembler(self._runtime.need_counter(), budget, self._runtime.policy)
        for attempt in range(_MAX_ATTEMPTS):
            view, previous = load_view(self._runtime, branch_id, budget)
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
                back_off(attempt, base_s=0.002, max_s=0.1)
            else:
                _log_warnings(recorded)
                return recorded
        raise AssertionError("the loop returns or raises")


def _log_warnings(prompt: Prompt) -> None:
    """Log the warnings of *prompt* if they are new: at the start, or with other pins."""
    if prompt.reuse.broken_by not in (None, PrefixBreak.COMPACTION, PrefixBreak.RETRIEVED):
        for warning in prompt.warnings:
            line = "branch {branch_id}: " + warning.replace("{", "{{").replace("}", "}}")
            log(_log, logging.WARNING, "prompt_warning", line, branch_id=prompt.branch_id)
