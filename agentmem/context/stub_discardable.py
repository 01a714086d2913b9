"""Replace discardable messages of older turns by a one-line stub."""

from dataclasses import replace

from agentmem.context.draft import Draft
from agentmem.context.prompt_messages import STUB_LINE, PromptMessage, show_stub
from agentmem.context.step_inputs import StepInputs
from agentmem.errors import ConfigError
from agentmem.protocols import Discardable
from agentmem.types import DisplayForm, Role, StoredMessage


def stub_discardable(draft: Draft, inputs: StepInputs) -> Draft:
    """
    Show a stub in place of each older message that the policy discards.

    Raises:
        ConfigError: the policy failed on a message.
    """
    discardable = inputs.policy.discardable
    if discardable is None:
        return inputs.recalling(draft)
    older = []
    for index, unit in enumerate(draft.older):
        age = len(draft.older) - index
        shown = (
            show_stub(one.stored, STUB_LINE.format(position=one.position))
            if _may_stub(one) and _is_discarded(one.stored, age, discardable)
            else one
            for one in unit
        )
        older.append(tuple(shown))
    return inputs.recalling(replace(draft, older=tuple(older)))


def _is_discarded(stored: StoredMessage, age: int, discardable: Discardable) -> bool:
    try:
        return bool(discardable.discards(stored, age=age))
    except Exception as error:
        raise ConfigError(
            f"the policy's discardable failed on message {stored.position}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _may_stub(shown: PromptMessage) -> bool:
    """Return whether a stub would be shorter; a user's message is never discarded."""
    line = STUB_LINE.format(position=shown.position)
    is_user = shown.message.role is Role.USER
    is_cut = shown.form is DisplayForm.STUB or shown.is_silent
    return not is_cut and not is_user and len(shown.message.text) > len(line)
