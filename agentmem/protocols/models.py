"""Interfaces of token counters and language models."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from math import isnan
from typing import Protocol, runtime_checkable

from agentmem.config import Sampling
from agentmem.errors import InvalidInputError
from agentmem.types import Generation, Message, ModelHealth
from agentmem.types.fields import Checked, check_fields
from agentmem.types.short_repr import ShortRepr


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedChat(Checked):
    """
    Messages rendered by the chat template, and the token ids of that text.

    *ends* is the number of ids up to the end of each message, from a counter that renders message
    by message; else None.
    """

    text: str
    token_ids: tuple[int, ...] = field(repr=False)
    ends: tuple[int, ...] | None = field(default=None, repr=False)


class TokenCounter(Protocol):
    """
    Counts exactly like the model: with its chat template and tokenizer.

    Optional: an attribute ``default_system``, the methods of `DatedCounter` and `ThinkingCounter`.
    """

    @property
    def fingerprint(self) -> str:
        """Identify tokenizer and template: the same fingerprint always gives the same ids."""
        ...

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> RenderedChat:
        """
        Render *messages* with the model's template, and tokenize them.

        Text of a message never becomes a control token. The ids of ``generated`` are kept for a
        message whose ``generated`` has this fingerprint.
        """
        ...

    def count(self, message: Message) -> int:
        """
        Return the number of tokens that *message* adds to a transcript.

        An estimate to select by; the selected messages are rendered and counted as a whole.
        """
        ...


def default_system(counter: TokenCounter) -> str | None:
    """Return the template's default system text, if *counter* has one."""
    text = getattr(counter, "default_system", None)
    return text if isinstance(text, str) and text else None


@runtime_checkable
class DatedCounter(TokenCounter, Protocol):
    """Optional interface: a counter whose template may print a date."""

    def at_date(self, day: date) -> TokenCounter:
        """
        Return a counter that renders with the date *day*.

        It shares its cache with all counters whose template prints the same.
        Fingerprints differ only where the output does: without a date in the template this is the
        counter itself.
        """
        ...


def counter_at(counter: TokenCounter, day: date) -> TokenCounter:
    """Return *counter* with the date *day*; unchanged if it is not a `DatedCounter`."""
    return counter.at_date(day) if isinstance(counter, DatedCounter) else counter


@runtime_checkable
class ThinkingCounter(TokenCounter, Protocol):
    """Optional interface: a counter that separates the reasoning of its model from answers."""

    def split_answer(self, text: str, *, is_generated: bool = False) -> tuple[str, str]:
        """
        Return the reasoning in *text*, which the model wrote, and the answer without it.

        A generated answer may begin inside reasoning that the prompt has opened.
        """
        ...


def split_answer(
    counter: TokenCounter | None, text: str, *, is_generated: bool = False
) -> tuple[str, str]:
    """Return reasoning and answer in *text*; all is answer if *counter* separates none."""
    if isinstance(counter, ThinkingCounter):
        return counter.split_answer(text, is_generated=is_generated)
    return "", text


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest(ShortRepr):
    """
    A request to a model.

    *cache_salt* separates cached prefixes: only requests with the same salt share them. Waiting
    requests start in order of *priority*, highest first. A request without a token after
    *timeout_s* seconds is an error; one with tokens ends with those. Its cached blocks are evicted
    after those of requests with a lower *cache_priority*.

    Raises:
        InvalidInputError: a field is of the wrong type.
    """

    token_ids: tuple[int, ...] = field(repr=False)
    sampling: Sampling
    cache_salt: str = ""
    priority: int = 0
    timeout_s: float | None = None
    cache_priority: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.token_ids, tuple) and not {int}.issuperset(map(type, self.token_ids)):
            odd = next(one for one in self.token_ids if type(one) is not int)
            raise InvalidInputError(f"a prompt is a tuple of token ids, got {odd!r:.80} among them")
        check_fields(self)
        kinds = {"cache_salt": str, "priority": int, "cache_priority": int, "token_ids": tuple}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise InvalidInputError(f"{name} must be a {kind.__name__}, got {value!r:.80}")
        timeout_s: object = self.timeout_s
        if timeout_s is not None and (not isinstance(timeout_s, int | float) or isnan(timeout_s)):
            raise InvalidInputError(
                f"timeout_s must be a number of seconds, or None to wait, got {timeout_s!r:.80}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk(Checked):
    """
    A part of a running generation.

    The texts of all chunks concatenated are the text of the result, which the last chunk carries.
    A character is never split over two chunks.
    """

    text: str
    result: Generation | None = None


class ChunkStream(Protocol):
    """The chunks of a running generation; a generator is a `TokenStream`."""

    def __iter__(self) -> Iterator[Chunk]: ...

    def __next__(self) -> Chunk: ...

    def close(self) -> None:
        """
        Cancel the request and release its memory.

        Closing ends a wait of another thread for the next chunk; with a generator, which cannot be
        closed meanwhile, the chunk is awaited first.
        """
        ...


@runtime_checkable
class ReportingModel(Protocol):
    """Optional interface: a model that reports its health."""

    def health(self) -> ModelHealth:
        """Return without blocking, also during a step or after closing."""
        ...


class LanguageModel(Protocol):
    """Generates text from token ids."""

    @property
    def name(self) -> str: ...

    @property
    def context_window(self) -> int:
        """Maximum tokens of prompt and reply together."""
        ...

    @property
    def counter(self) -> TokenCounter: ...

    def stream(self, request: GenerationRequest) -> ChunkStream:
        """
        Generate a reply; the last chunk carries the result.

        Closing the stream cancels the request and releases its memory.

        Raises:
            AdmissionError: the request can never fit.
        """
        ...

    def discard_prefix(
        self, token_ids: Sequence[int], *, num_kept: int = 0, cache_salt: str = ""
    ) -> None:
        """Evict the cache of *token_ids* after the first *num_kept* tokens, unless in use."""
        ...

    def forget(self, *, cache_salt: str) -> None:
        """Evict the cache of *cache_salt*, whose messages were deleted."""
        ...
