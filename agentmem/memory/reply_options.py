"""Options of all calls that generate an answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from agentmem.config import Budget, Sampling
from agentmem.memory.arguments import bounded_sampling, check_scheduling
from agentmem.memory.recall import Wanted, wanted_recall
from agentmem.memory.user_runtime import Runtime
from agentmem.protocols import Hit


class ReplyOptions(TypedDict, total=False):
    """
    The keyword arguments of `stream`, `reply`, `regenerate` and their coroutine forms.

    sampling: sampling parameters and the maximum tokens; the memory's by default.
    budget: the token budget of the prompt; the memory's by default.
    query: the search query, in place of the last question.
    hits: messages to recall, in place of a search; ``()`` recalls nothing.
    priority: waiting requests with a higher priority start first.
    timeout_s: seconds until an answer without a token is an error, and one with tokens ends.
    """

    sampling: Sampling | None
    budget: Budget | None
    query: str | None
    hits: Sequence[Hit] | None
    priority: int
    timeout_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOptions:
    """`ReplyOptions` with defaults, validated before anything is stored."""

    sampling: Sampling
    budget: Budget
    wanted: Wanted
    priority: int
    timeout_s: float | None


def checked_options(  # noqa: PLR0913 - the fields of `ReplyOptions`, with their defaults
    runtime: Runtime,
    *,
    sampling: Sampling | None = None,
    budget: Budget | None = None,
    query: str | None = None,
    hits: Sequence[Hit] | None = None,
    priority: int = 0,
    timeout_s: float | None = None,
) -> CheckedOptions:
    """
    Return the options with the defaults of *runtime*.

    Raises:
        InvalidInputError, ConfigError: an option has a wrong type or value.
        TypeError: an unknown option.
    """
    check_scheduling(priority, timeout_s)
    wanted = wanted_recall(runtime, query, hits)
    held = runtime.budget_for(budget)
    return CheckedOptions(
        sampling=bounded_sampling(sampling, held),
        budget=held,
        wanted=wanted,
        priority=priority,
        timeout_s=timeout_s,
    )
