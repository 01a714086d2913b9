"""What a model gave, and what it cost."""

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
    """What one generation cost."""

    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens whose keys and values were found in the cache, counted once."""

    completion_tokens: int
    ttft_s: float
    """Seconds from the request to the first generated token."""

    total_s: float

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that the model had to prefill."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def tokens_per_s(self) -> float | None:
        """Decode speed after the first token; None for fewer than two tokens."""
        if self.completion_tokens < 2 or self.total_s <= self.ttft_s:  # noqa: PLR2004 - two ends
            return None
        return (self.completion_tokens - 1) / (self.total_s - self.ttft_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob(Checked):
    """One generated token and how likely the model found it, before sampling narrowed it down."""

    token_id: int
    logprob: float
    """Natural logarithm of the probability."""

    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens with theirs, likeliest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation(Checked):
    """
    The result of one generation.

    *token_ids* are the first of the generated tokens, as far as they spell *text*; what stopped it
    is not among them. Where a stop string ended inside a token, that token is the last of them, and
    their spelling goes on behind *text*: *is_exact* is then false. So it is where there are none,
    since the model wrote a control token, which no text has.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] = ()
    """
    One for each generated token, if asked for.

    The first ``len(token_ids)`` are those of *token_ids*; then come those of what stopped the text
    and was left out of it.
    """

    is_exact: bool = True
    """Whether *token_ids* spell *text* and nothing more."""

    error: str | None = None
    """What went wrong, where many results are given at once and one of them is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Checked):
    """An answer of the model, the prompt that led to it and what it cost."""

    text: str
    """The answer without thoughts that are marked as the model's template knows them."""

    finish_reason: FinishReason
    usage: Usage
    prompt: Prompt
    message: StoredMessage | None
    """The stored answer; None when the model ended without a word."""
