"""
Summaries written by a language model.

The model is a stranger here: it may fail, say nothing or say too much. Then the deterministic
summary stands in, and the author of the summary says so; no error text ever becomes memory.
"""

import threading
from collections.abc import Callable, Sequence
from uuid import uuid4

from agentmem.config import Sampling
from agentmem.context.extractive import ExtractiveSummarizer
from agentmem.context.summary_checks import INSTRUCTIONS, read_summary
from agentmem.context.summary_lines import line_of
from agentmem.errors import AgentMemError, ConfigError
from agentmem.protocols import GenerationRequest, LanguageModel, Passage, split_answer
from agentmem.types import Message, Role, TextPart
from agentmem.types.fields import checked_value
from agentmem.types.short_repr import short_repr

_MARGIN = 32
"""Tokens kept free of the model's window for what its template adds."""


class ModelSummarizer:
    """
    Lets *model* write, and falls back to sentences as they were said.

    It runs while a prompt is assembled; `Session.compact()` does that ahead of time. What does not
    fit into the model's window is first cut down to its most telling sentences, so the
    summariser's own prompt can never be over the window.

    Raises:
        ConfigError: *model* is not a language model, or *attempts* not an integer.
    """

    def __init__(self, model: LanguageModel, *, attempts: int = 2) -> None:
        checked_value("model", model, LanguageModel, ConfigError)
        self._model = model
        self._attempts = checked_value("attempts", attempts, int, ConfigError)
        self._fallback = ExtractiveSummarizer()
        # A compaction in the background and a reply may both ask at once.
        self._last = threading.local()

    def __repr__(self) -> str:
        return short_repr("ModelSummarizer", self._model.name)

    @property
    def author(self) -> str:
        """Who wrote what this thread was given last."""
        author: str = getattr(self._last, "author", self._model.name)
        return author

    def summarize(
        self, passages: Sequence[Passage], *, max_tokens: int, count: Callable[[str], int]
    ) -> str:
        """
        Summarize *passages* with the model, or fall back.

        *author* is the model's name afterwards, or that of the fallback with the reason. Thoughts
        are left out; other output, such as a tool call, an apology or an error, is rejected.
        """
        reason: str | None = None
        for _ in range(self._attempts):
            try:
                written = self._ask(passages, max_tokens)
            except AgentMemError as error:
                reason = type(error).__name__
                continue
            text, reason = read_summary(written)
            if not written.strip() or (reason is None and count(text) > max_tokens):
                reason = "it said nothing that is short enough"
            if reason is None:
                self._last.author = self._model.name
                return text
        self._last.author = f"{self._fallback.author}, since {self._model.name} failed: {reason}"
        return self._fallback.summarize(passages, max_tokens=max_tokens, count=count)

    def _ask(self, passages: Sequence[Passage], max_tokens: int) -> str:
        counter = self._model.counter
        room = self._model.context_window - max_tokens - _MARGIN
        text = "\n".join(map(line_of, passages))
        messages = _request(text)
        if len(counter.render(messages).token_ids) > room:
            text = self._fallback.summarize(
                passages,
                max_tokens=max(0, room - len(counter.render(_request("")).token_ids)),
                count=lambda sentence: counter.count(_request(sentence)[-1]),
            )
            messages = _request(text)
        # A salt for once: the user is unknown here, so nothing may share this prefix.
        token_ids, salt = counter.render(messages).token_ids, uuid4().hex
        request = GenerationRequest(
            token_ids=token_ids, sampling=Sampling(max_tokens=max_tokens), cache_salt=salt
        )
        try:
            written = "".join(chunk.text for chunk in self._model.stream(request))
        finally:
            self._model.discard_prefix(token_ids, cache_salt=salt)
        # The prompt may have opened a thought, which then has no mark where it was cut off.
        thought, answer = split_answer(counter, written, is_generated=True)
        return answer if thought else written


def _request(text: str) -> list[Message]:
    return [
        Message(role=Role.SYSTEM, parts=(TextPart(text=INSTRUCTIONS),)),
        Message(role=Role.USER, parts=(TextPart(text=f"The conversation:\n{text}"),)),
    ]
