"""What one layer needs of another. Implementations do not import each other, only this."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentmem.config import Sampling
from agentmem.types import Generation, Message, Role, StoredMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedChat:
    """A list of messages as the chat template writes it, and the ids of that text."""

    text: str
    token_ids: tuple[int, ...] = field(repr=False)


class TokenCounter(Protocol):
    """Counts exactly as the model will: its own chat template and tokenizer."""

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
        Tell how many tokens *message* adds to a transcript that it is appended to.

        Good enough to choose by; what was chosen is rendered and counted as a whole.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """
    What is asked of a model.

    *cache_salt* separates cached prefixes: only requests with the same salt share them.
    """

    token_ids: tuple[int, ...] = field(repr=False)
    sampling: Sampling
    cache_salt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """
    A piece of a running generation.

    The texts of all chunks together are the text of the result, which the last chunk carries.
    A character is never split over two chunks.
    """

    text: str
    result: Generation | None = None


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

    def stream(self, request: GenerationRequest) -> Generator[Chunk]:
        """
        Generate; the last chunk carries the result.

        Closing the generator cancels the request and gives its memory back.

        Raises:
            AdmissionError: the request can never fit.
        """
        ...

    def discard_prefix(
        self, token_ids: Sequence[int], *, keep: int = 0, cache_salt: str = ""
    ) -> None:
        """Drop what is cached of *token_ids* after the first *keep* tokens, unless in use."""
        ...

    def forget(self, *, cache_salt: str) -> None:
        """Drop all that is cached under *cache_salt*: what it was made of has been deleted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text that a summary is made of: a message, or a summary that is folded into the next."""

    position: int
    role: Role
    text: str


class Summarizer(Protocol):
    """Writes a text that stands for a run of messages."""

    @property
    def author(self) -> str:
        """Who wrote the summary, for the log."""
        ...

    def summarize(
        self, passages: Sequence[Passage], *, max_tokens: int, count: Callable[[str], int]
    ) -> str:
        """
        Sum up *passages* in at most *max_tokens*, as *count* counts a text.

        The same passages give the same text, or the prompt would not be the same bytes for the
        same state. An empty text means that nothing could be said in so few tokens.
        """
        ...


class Discardable(Protocol):
    """Decides what of the older conversation may give way before whole turns do."""

    def discards(self, stored: StoredMessage, *, age: int) -> bool:
        """
        Tell whether a line that says where it is may stand in place of *stored*.

        It is asked when the window slides, never in between, so that it costs no prefix.

        Args:
            stored: a message of an older turn.
            age: how many turns have begun since; 1 is the turn before the current one.
        """
        ...


class AutoPin(Protocol):
    """Decides what is pinned as it is said."""

    def pin(self, stored: StoredMessage, *, is_first: bool) -> tuple[str, str] | None:
        """
        Give key and text of a pin of this branch to make of *stored*, or None.

        *is_first* tells whether it is the first message that this branch itself has.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message that was recalled, and how good a match it is: higher is better."""

    stored: StoredMessage
    score: float
    is_local: bool = True
    """Whether its position is one of the branch that it is recalled for."""
