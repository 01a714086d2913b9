"""
Fakes for tests of this package and of its users. No model library is loaded.

`WordCounter` counts words as tokens; `ScriptedModel` answers from a list and tracks shared
prefixes like a real engine; `HashingEmbedder` gives texts with the same words close vectors.
"""

import re
import time
import zlib
from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache
from typing import Any

from agentmem.errors import AdmissionError
from agentmem.protocols import Chunk, GenerationRequest, RenderedChat
from agentmem.types import FinishReason, Generation, Message, Usage, common_prefix

_CONTROL_IDS = 16
"""Ids below this are control tokens, and never those of a word."""


class WordCounter:
    """
    A `TokenCounter` for which a token is a word.

    A message is one control token for its role, its words, and one for its end; a prompt for
    generation ends with the control token of the assistant. Numbers stay small enough for mental
    arithmetic.
    """

    fingerprint = "words"

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> RenderedChat:
        texts: list[str] = []
        token_ids: list[int] = []
        for message in messages:
            words = self._words(message)
            texts.append(f"{message.role}: {' '.join(words)}\n")
            token_ids += [self._role_id(message.role), *map(self._word_id, words), 0]
        if add_generation_prompt:
            texts.append("assistant:")
            token_ids.append(self._role_id("assistant"))
        return RenderedChat(text="".join(texts), token_ids=tuple(token_ids))

    def count(self, message: Message) -> int:
        return len(self._words(message)) + 2

    @staticmethod
    def _words(message: Message) -> list[str]:
        calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
        return [*message.text.split(), *calls]

    @staticmethod
    def _role_id(role: str) -> int:
        return 1 + ("system", "user", "assistant", "tool").index(role)

    @staticmethod
    @lru_cache(maxsize=65536)
    def _word_id(word: str) -> int:
        return _CONTROL_IDS + zlib.crc32(word.encode()) % (2**32 - _CONTROL_IDS)


class ScriptedModel:
    """
    A `LanguageModel` that answers with *replies*, in order, then with ``"ok"``.

    ``usage.cached_tokens`` is the longest prefix shared with an earlier request of the same salt,
    as in an unbounded prefix cache. *requests* lists all requests.
    """

    name = "scripted"

    def __init__(self, replies: Iterable[str] = (), *, context_window: int = 8192) -> None:
        self.context_window = context_window
        self.counter = WordCounter()
        self.requests: list[GenerationRequest] = []
        self._replies = iter(replies)

    def stream(self, request: GenerationRequest) -> Generator[Chunk]:
        limit = request.sampling.max_tokens or self.context_window
        if len(request.token_ids) + 1 > self.context_window:
            raise AdmissionError(
                needed=len(request.token_ids) + 1, limit=self.context_window, reason="the window"
            )
        started = time.perf_counter()
        cached = self._cached(request)
        self.requests.append(request)
        words = next(self._replies, "ok").split()
        kept = words[:limit]
        ttft_s = time.perf_counter() - started
        for index, word in enumerate(kept):
            yield Chunk(text=word if index == 0 else f" {word}")
        yield Chunk(
            text="",
            result=Generation(
                text=" ".join(kept),
                token_ids=tuple(WordCounter._word_id(word) for word in kept),  # noqa: SLF001 - its own counter
                finish_reason=FinishReason.STOP if kept == words else FinishReason.LENGTH,
                usage=Usage(
                    prompt_tokens=len(request.token_ids),
                    cached_tokens=cached,
                    completion_tokens=len(kept),
                    ttft_s=ttft_s,
                    total_s=time.perf_counter() - started,
                ),
            ),
        )

    def discard_prefix(
        self, token_ids: Sequence[int], *, num_kept: int = 0, cache_salt: str = ""
    ) -> None:
        """Forget the requests that are prefixes of *token_ids* and longer than *num_kept*."""
        self.requests = [
            old
            for old in self.requests
            if old.cache_salt != cache_salt
            or len(old.token_ids) <= num_kept
            or old.token_ids != tuple(token_ids[: len(old.token_ids)])
        ]

    def forget(self, *, cache_salt: str) -> None:
        """Forget all requests with that salt."""
        self.requests = [old for old in self.requests if old.cache_salt != cache_salt]

    def _cached(self, request: GenerationRequest) -> int:
        # The last token is always computed: its logits give the first new token.
        limit = len(request.token_ids) - 1
        shared = (
            common_prefix(old.token_ids, request.token_ids[:limit])
            for old in self.requests
            if old.cache_salt == request.cache_salt
        )
        return max(shared, default=0)


class HashingEmbedder:
    """
    An embedder whose similarity is the share of common words.

    The same text has the same vector in every process. Another *name* gives another fingerprint
    and other vectors. A text of more than *max_chars* characters is split into overlapping chunks.
    """

    reads_unspaced = False

    def __init__(
        self, *, name: str = "hashing", dimension: int = 256, max_chars: int = 1000
    ) -> None:
        self.dimension = dimension
        self.fingerprint = f"{name}:{dimension}:{max_chars}"
        self._max_chars = max_chars

    def embed_passages(self, texts: Sequence[str]) -> Any:
        """Return a numpy array of float32: (texts, dimension)."""
        import numpy as np  # noqa: PLC0415 - most users of these fakes need no vectors

        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in re.findall(r"\w+", text.casefold()):
                place, sign = self._place(word)
                vector[place] += sign
            if not vector.any():
                vector[self._place(text)[0]] = 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def embed_query(self, text: str) -> Any:
        """Return a numpy array of float32: (dimension,)."""
        return self.embed_passages([text])[0]

    def split(self, text: str) -> list[tuple[int, int]]:
        step = max(1, self._max_chars * 3 // 4)
        starts = range(0, max(1, len(text) - self._max_chars + step), step)
        return [(start, min(start + self._max_chars, len(text)) - 1) for start in starts]

    def _place(self, word: str) -> tuple[int, int]:
        number = zlib.crc32(f"{self.fingerprint} {word}".encode())
        return (number >> 1) % self.dimension, 1 if number & 1 else -1


__all__ = ["HashingEmbedder", "ScriptedModel", "WordCounter"]
