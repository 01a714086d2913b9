"""The result of a generation, and its usage."""

from dataclasses import dataclass
from enum import StrEnum

from agentmem.types.fields import Checked
from agentmem.types.messages import StoredMessage
from agentmem.types.prompt import Prompt


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(Checked):
    """Token counts and timings of one generation."""

    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens whose keys and values were cached, counted once."""

    completion_tokens: int
    ttft_s: float
    """Seconds from the request to the first generated token."""

    total_s: float

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that the model prefilled."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def tokens_per_s(self) -> float | None:
        """Decode speed after the first token; None for fewer than two tokens."""
        if self.completion_tokens < 2 or self.total_s <= self.ttft_s:  # noqa: PLR2004 - two ends
            return None
        return (self.completion_tokens - 1) / (self.total_s - self.ttft_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob(Checked):
    """The log-probability of one generated token, before sampling filters."""

    token_id: int
    logprob: float
    """Natural logarithm of the probability."""

    top: tuple[tuple[int, float], ...] = ()
    """The top alternatives with their log-probabilities, most probable first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation(Checked):
    """
    The result of one generation.

    *token_ids* are the generated tokens of *text*, without the stop token or stop string. Where a
    stop string ended inside a token, that token is the last one and decodes to more than *text*:
    *is_exact* is then false. So it is without ids, where the model wrote a control token as text.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] = ()
    """
    One for each generated token, if requested.

    The first ``len(token_ids)`` are those of *token_ids*; those of the stop sequence follow.
    """

    is_exact: bool = True
    """Whether *token_ids* decode to *text* exactly."""

    error: str | None = None
    """The error of a failed request among many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Checked):
    """An answer of the model, its prompt and its usage."""

    text: str
    """The answer without reasoning, as the model's template marks it."""

    finish_reason: FinishReason
    usage: Usage
    prompt: Prompt
    message: StoredMessage | None
    """The stored answer; None when the model returned no text."""
