"""What counts tokens and what generates them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from math import isnan
from typing import Protocol, runtime_checkable

from agentmem.config import Sampling
from agentmem.errors import InvalidInputError
from agentmem.types import Generation, Message, ModelHealth
from agentmem.types.fields import Checked, check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedChat(Checked):
    """
    A list of messages as the chat template writes it, and the ids of that text.

    *ends* tells how many of the ids stand up to the end of each message. It is for who writes
    one message after the other, and None for everybody else.
    """

    text: str
    token_ids: tuple[int, ...] = field(repr=False)
    ends: tuple[int, ...] | None = field(default=None, repr=False)


class TokenCounter(Protocol):
    """
    Counts exactly as the model will: its own chat template and tokenizer.

    One may have an attribute ``default_system`` and be a `DatedCounter` or a `ThinkingCounter`.
    """

    @property
    def fingerprint(self) -> str:
        """Name tokenizer and template: the same fingerprint gives the same ids for ever."""
        ...

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> RenderedChat:
        """
        Write *messages* as the model's template does, and give the ids.

        Text of a message never becomes a control token, whatever it spells. A message whose
        ``generated`` has this fingerprint keeps those ids.
        """
        ...

    def count(self, message: Message) -> int:
        """
        Return how many tokens *message* adds to a transcript that it is appended to.

        Good enough to choose by; what was chosen is rendered and counted as a whole.
        """
        ...


def default_system(counter: TokenCounter) -> str | None:
    """Return the system text that the template writes by itself, if *counter* knows of one."""
    text = getattr(counter, "default_system", None)
    return text if isinstance(text, str) and text else None


@runtime_checkable
class DatedCounter(TokenCounter, Protocol):
    """A counter whose template may print a date; others need no such method."""

    def at_date(self, day: date) -> TokenCounter:
        """
        Return the counter that renders as on *day*.

        It shares what it remembers with all other counters whose template prints the same.
        Fingerprints differ only where what is printed does: a template without a date returns
        the counter itself.
        """
        ...


def counter_at(counter: TokenCounter, day: date) -> TokenCounter:
    """Return *counter* as on *day*; itself where it knows no dates."""
    return counter.at_date(day) if isinstance(counter, DatedCounter) else counter


@runtime_checkable
class ThinkingCounter(TokenCounter, Protocol):
    """A counter that knows how thoughts of its model are marked; others need no such method."""

    def split_answer(self, text: str, *, is_generated: bool = False) -> tuple[str, str]:
        """
        Return the thoughts in *text*, which the model said, and its answer without them.

        An answer that was generated, and not handed over, may begin inside a thought that the
        prompt has opened.
        """
        ...


def split_answer(
    counter: TokenCounter | None, text: str, *, is_generated: bool = False
) -> tuple[str, str]:
    """Return thoughts and answer in *text*; all is the answer where *counter* knows no thoughts."""
    if isinstance(counter, ThinkingCounter):
        return counter.split_answer(text, is_generated=is_generated)
    return "", text


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """
    What is asked of a model.

    *cache_salt* separates cached prefixes: only requests with the same salt share them. Of the
    requests that wait, those with a higher *priority* begin first. A request that has no token
    after *timeout_s* seconds is an error; one that has some ends with them. What is cached of it
    outlives what requests with a lower *cache_priority* have left.

    Raises:
        InvalidInputError: a field is of another type than it says.
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
    A piece of a running generation.

    The texts of all chunks together are the text of the result, which the last chunk carries.
    A character is never split over two chunks.
    """

    text: str
    result: Generation | None = None


class ChunkStream(Protocol):
    """The chunks of a running generation; a generator is one."""

    def __iter__(self) -> Iterator[Chunk]: ...

    def __next__(self) -> Chunk: ...

    def close(self) -> None:
        """
        Cancel the request and give its memory back.

        A model whose stream can be closed while another thread waits for its next chunk ends that
        wait; of a generator, which cannot, the chunk is waited for.
        """
        ...


@runtime_checkable
class ReportingModel(Protocol):
    """A model that can say how it is; others need no such method."""

    def health(self) -> ModelHealth:
        """Return at once, also while a step runs or after it was closed."""
        ...


class LanguageModel(Protocol):
    """Turns token ids into text."""

    @property
    def name(self) -> str: ...

    @property
    def context_window(self) -> int:
        """Tokens of prompt and reply together that the model was made for."""
        ...

    @property
    def counter(self) -> TokenCounter: ...

    def stream(self, request: GenerationRequest) -> ChunkStream:
        """
        Generate; the last chunk carries the result.

        Closing the stream cancels the request and gives its memory back.

        Raises:
            AdmissionError: the request can never fit.
        """
        ...

    def discard_prefix(
        self, token_ids: Sequence[int], *, num_kept: int = 0, cache_salt: str = ""
    ) -> None:
        """Drop what is cached of *token_ids* after the first *num_kept* tokens, unless in use."""
        ...

    def forget(self, *, cache_salt: str) -> None:
        """Drop all that is cached under *cache_salt*: what it was made of has been deleted."""
        ...
