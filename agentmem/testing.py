"""
Stand-ins for tests, of this package and of what is built on it. No model library is loaded.

`WordCounter` counts words where a real one counts tokens; `ScriptedModel` answers from a list
and keeps account of prefixes as a real engine does.
"""

import time
import zlib
from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache

from agentmem.errors import AdmissionError
from agentmem.protocols import Chunk, GenerationRequest, RenderedChat
from agentmem.types import FinishReason, Generation, Message, Usage, common_prefix

_CONTROL_IDS = 16
"""Ids below this one are control tokens; a word never has one of them."""


class WordCounter:
    """
    A `TokenCounter` for which a token is a word.

    A message is one control token for its role, its words, and one for its end; a prompt for
    generation ends with the control token of the assistant. Numbers stay small enough to follow
    in the head.
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
    A `LanguageModel` that answers with *replies*, one after the other, then with ``"ok"``.

    ``usage.cached_tokens`` is the longest prefix that an earlier request with the same salt
    shares, as an unbounded prefix cache would have it. *requests* keeps what was asked.
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
        self, token_ids: Sequence[int], *, keep: int = 0, cache_salt: str = ""
    ) -> None:
        """Forget the requests that *token_ids* begins with and that are longer than *keep*."""
        self.requests = [
            old
            for old in self.requests
            if old.cache_salt != cache_salt
            or len(old.token_ids) <= keep
            or old.token_ids != tuple(token_ids[: len(old.token_ids)])
        ]

    def forget(self, *, cache_salt: str) -> None:
        """Forget all requests with that salt."""
        self.requests = [old for old in self.requests if old.cache_salt != cache_salt]

    def _cached(self, request: GenerationRequest) -> int:
        # The last token is always computed: its logits are what the first new token comes from.
        limit = len(request.token_ids) - 1
        shared = (
            common_prefix(old.token_ids, request.token_ids[:limit])
            for old in self.requests
            if old.cache_salt == request.cache_salt
        )
        return max(shared, default=0)


__all__ = ["ScriptedModel", "WordCounter"]
