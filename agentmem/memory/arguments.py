"""Validation and conversion of arguments."""

import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import isnan
from pathlib import Path

from agentmem.config import Budget, DatabaseConfig, Sampling
from agentmem.context import BranchView, Policy
from agentmem.errors import ConfigError, InvalidInputError
from agentmem.protocols import LanguageModel, Retriever, TokenCounter, split_answer
from agentmem.types import Part, PinScope, ReasoningPart, Role, TextPart, ToolCall
from agentmem.types.checks import is_int, is_number
from agentmem.types.fields import checked_value

_DEFAULT = Budget()
_DEFAULT_SAMPLING = Sampling()


def check_makers(
    model: LanguageModel | None, counter: TokenCounter | None, policy: Policy | None
) -> None:
    """
    Validate the parts of a memory: model, counter, budget, policy.

    Raises:
        ConfigError: one has a wrong type, such as a name or a class.
    """
    checked_value("model", model, LanguageModel | None, ConfigError)
    checked_value("counter", counter, TokenCounter | None, ConfigError)
    checked_value("policy", policy, Policy | None, ConfigError)
    if model is not None and counter is None:
        checked_value("the model's counter", model.counter, TokenCounter, ConfigError)


def check_database(database: DatabaseConfig | None, *, read_only: bool) -> None:
    """
    Validate the options of opening a database.

    Raises:
        ConfigError: one has a wrong type.
    """
    checked_value("database", database, DatabaseConfig | None, ConfigError)
    checked_value("read_only", read_only, bool, ConfigError)


def checked_budget(budget: Budget | None, model: LanguageModel | None) -> Budget:
    """
    Return *budget*, or the default one, if it fits the model's window.

    Raises:
        ConfigError: it is not a `Budget`, or its context exceeds the model's window.
    """
    checked_value("budget", budget, Budget | None, ConfigError)
    window = model.context_window if model is not None else None
    if window is None:
        return budget or _DEFAULT
    if budget is None:
        context = min(window, _DEFAULT.context)
        return Budget(context=context, reply=min(_DEFAULT.reply, max(1, context // 4)))
    if budget.context > window:
        raise ConfigError(
            f"the budget's context is {budget.context} tokens but the model's window is {window}: "
            "lower Budget.context"
        )
    return budget


def bounded_sampling(sampling: Sampling | None, budget: Budget) -> Sampling:
    """
    Limit the answer to the reply reserve of the budget.

    Raises:
        ConfigError: it is not a `Sampling`, or `max_tokens` exceeds the reserve.
    """
    sampling = checked_value("sampling", sampling, Sampling | None, ConfigError)
    if sampling is None:
        sampling = _DEFAULT_SAMPLING
    if sampling.max_tokens is not None and sampling.max_tokens > budget.reply:
        raise ConfigError(
            f"max_tokens is {sampling.max_tokens} but the budget keeps {budget.reply} tokens for "
            "the reply: lower max_tokens or raise Budget.reply"
        )
    return replace(sampling, max_tokens=sampling.max_tokens or budget.reply)


def moment_before(age: timedelta) -> datetime:
    """
    Return the time *age* before now.

    Raises:
        InvalidInputError: it is negative, or before the earliest datetime.
    """
    if not isinstance(age, timedelta) or age < timedelta(0):
        raise InvalidInputError(f"an age is a timedelta of at least 0, got {age!r:.80}")
    now = datetime.now(UTC)
    if age > now - datetime.min.replace(tzinfo=UTC):
        raise InvalidInputError(f"an age of {age} is before the earliest datetime")
    return now - age


def check_scheduling(priority: int, timeout_s: float | None) -> None:
    """
    Validate the scheduling options of a request.

    Raises:
        InvalidInputError: *priority* is not an integer, or *timeout_s* not greater than 0.
    """
    if not is_int(priority):
        raise InvalidInputError(f"priority must be an integer, got {priority!r:.80}")
    if timeout_s is None:
        return
    if not is_number(timeout_s) or not 0 < timeout_s <= sys.float_info.max:
        raise InvalidInputError(
            f"timeout_s must be seconds greater than 0, or None to wait, got {timeout_s!r:.80}"
        )


def seconds(timeout_s: float) -> float:
    """
    Return *timeout_s* as a timeout for threads.

    Raises:
        InvalidInputError: it is not a number.
    """
    if not is_number(timeout_s) or isnan(timeout_s):
        raise InvalidInputError(f"timeout_s must be a number of seconds, got {timeout_s!r:.80}")
    return min(timeout_s, threading.TIMEOUT_MAX)


def path_of(path: str | Path) -> Path:
    """
    Return *path* as a `Path`.

    Raises:
        InvalidInputError: it is not a valid path.
    """
    try:
        held = Path(path)
        is_one = b"\0" not in os.fsencode(held)
    except (TypeError, UnicodeEncodeError):
        is_one = False
    if not is_one:
        raise InvalidInputError(f"a path is a str or a Path, got {path!r:.80}")
    return held


def role_of(role: Role | str) -> Role:
    """
    Parse the name of a role.

    Raises:
        InvalidInputError: the role does not exist.
    """
    try:
        return Role(role)
    except ValueError as error:
        names = ", ".join(Role)
        raise InvalidInputError(f"there is no role {role!r}: it is one of {names}") from error


def pin_scope_of(scope: PinScope | str) -> PinScope:
    """
    Parse the name of a pin scope.

    Raises:
        InvalidInputError: the scope does not exist.
    """
    try:
        return PinScope(scope)
    except ValueError as error:
        names = ", ".join(PinScope)
        raise InvalidInputError(f"there is no pin scope {scope!r}: one of {names}") from error


def parts_of(content: str | Sequence[Part] | None) -> tuple[Part, ...]:
    """
    Convert content to parts: a text, parts, or None, as some clients write with calls.

    Raises:
        InvalidInputError: it is none of these.
    """
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(text=content),) if content else ()
    kinds = "a str, or a list of TextPart, ImagePart and ReasoningPart"
    if not isinstance(content, Sequence):
        raise InvalidInputError(f"content is {kinds}, got {content!r:.80}")
    parts = []
    for part in content:
        if not isinstance(part, Part):
            raise InvalidInputError(f"content is {kinds}, got {part!r:.80} among them")
        parts.append(part)
    return tuple(parts)


def thought_and_answer(thought: str, answer: str) -> tuple[Part, ...]:
    """Return a model's text as parts; empty for a blank one."""
    parts: list[Part] = []
    if thought.strip():
        parts.append(ReasoningPart(text=thought))
    if answer.strip():
        parts.append(TextPart(text=answer))
    return tuple(parts)


def parts_said(
    role: Role | str, content: str | Sequence[Part] | None, counter: TokenCounter | None
) -> tuple[Part, ...]:
    """
    Convert content to parts, with the reasoning in an assistant's texts as separate parts.

    Raises:
        InvalidInputError: as `parts_of` does.
    """
    parts = parts_of(content)
    if role != Role.ASSISTANT:
        return parts
    apart: list[Part] = []
    for part in parts:
        if isinstance(part, TextPart):
            thought, answer = split_answer(counter, part.text)
            apart += (part,) if answer == part.text else thought_and_answer(thought, answer)
        else:
            apart.append(part)
    # Only empty reasoning tags: the text is kept, since removing them would make it empty.
    return tuple(apart) or parts


def calls_of(tool_calls: Sequence[ToolCall] | None) -> tuple[ToolCall, ...]:
    """
    Validate the tool calls of a message; None, as some clients write, means none.

    Raises:
        InvalidInputError: it is not a sequence, or an item is not a ToolCall.
    """
    if tool_calls is None:
        return ()
    if not isinstance(tool_calls, Sequence):
        raise InvalidInputError(f"tool_calls takes a list of ToolCall, got {tool_calls!r:.80}")
    for call in tool_calls:
        if not isinstance(call, ToolCall):
            raise InvalidInputError(f"tool_calls takes ToolCall values, got {call!r:.80}")
    return tuple(tool_calls)


def checked_retriever(retriever: Retriever | None) -> Retriever | None:
    """
    Validate *retriever*.

    Raises:
        ConfigError: it has a wrong type, such as the name of a model or a class.
    """
    is_one = not isinstance(retriever, type) and callable(getattr(retriever, "open_index", None))
    if retriever is not None and not is_one:
        raise ConfigError(
            f"a retriever is an object such as HybridRetriever.load(), got {retriever!r:.80}"
        )
    return retriever


def said(view: BranchView) -> BranchView:
    """
    Return *view* if it has messages to show besides pins.

    Raises:
        InvalidInputError: it has none.
    """
    if not view.says_anything:
        raise InvalidInputError(
            "there is no message to assemble yet, and pins alone are not a prompt: append() a "
            "user's message first"
        )
    return view
