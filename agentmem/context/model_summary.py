"""
Summaries written by a language model.

The model is untrusted: it may fail, or return too little or too much. Then the extractive summary
is the fallback, which the author of the summary names; no error text becomes a summary.
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
"""Tokens of the model's window reserved for its template."""


class ModelSummarizer:
    """
    Summarizes with *model*, and falls back to extractive summaries.

    It runs while a prompt is assembled; `Session.compact()` does that ahead of time. Passages that
    exceed the model's window are first reduced to their most salient sentences, so that the
    summarizer's prompt always fits.

    Raises:
        ConfigError: *model* is not a language model, or *attempts* not an integer.
    """

    def __init__(self, model: LanguageModel, *, attempts: int = 2) -> None:
        checked_value("model", model, LanguageModel, ConfigError)
        self._model = model
        self._attempts = checked_value("attempts", attempts, int, ConfigError)
        self._fallback = ExtractiveSummarizer()
        # A background compaction and a reply may call it concurrently.
        self._last = threading.local()

    def __repr__(self) -> str:
        return short_repr("ModelSummarizer", self._model.name)

    @property
    def author(self) -> str:
        """The author of this thread's last summary."""
        author: str = getattr(self._last, "author", self._model.name)
        return author

    def summarize(
        self, passages: Sequence[Passage], *, max_tokens: int, count: Callable[[str], int]
    ) -> str:
        """
        Summarize *passages* with the model, or fall back.

        *author* is then the model's name, or that of the fallback with the reason. Reasoning is
        removed; other output, such as a tool call, an apology or an error, is rejected.
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
        # A single-use salt: the user is unknown here, so no other request may share this prefix.
        token_ids, salt = counter.render(messages).token_ids, uuid4().hex
        request = GenerationRequest(
            token_ids=token_ids, sampling=Sampling(max_tokens=max_tokens), cache_salt=salt
        )
        try:
            written = "".join(chunk.text for chunk in self._model.stream(request))
        finally:
            self._model.discard_prefix(token_ids, cache_salt=salt)
        # The prompt may have opened reasoning, which then has no tag where it was cut off.
        thought, answer = split_answer(counter, written, is_generated=True)
        return answer if thought else written


def _request(text: str) -> list[Message]:
    return [
        Message(role=Role.SYSTEM, parts=(TextPart(text=INSTRUCTIONS),)),
        Message(role=Role.USER, parts=(TextPart(text=f"The conversation:\n{text}"),)),
    ]
