"""A model on an OpenAI-compatible server, for the demo."""

import json
import re
import time
import zlib
from collections import OrderedDict
from collections.abc import Generator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final, Self

from agentmem.errors import ConfigError, InferenceError, InvalidInputError
from agentmem.protocols import Chunk, GenerationRequest, RenderedChat
from agentmem.types import FinishReason, Generation, Message, Usage

_TIMEOUT_S: Final = 120.0
_NUM_REMEMBERED: Final = 64
_PIECE = re.compile(r"\s?\w{1,4}|\S|\s")


class EstimatingCounter:
    """
    Counts four letters as a token, since a server does not expose its tokenizer.

    It caches the rendered messages by their ids: a server gets messages, while a model of this
    package gets ids.
    """

    fingerprint = "estimate-4"

    def __init__(self) -> None:
        self._rendered: OrderedDict[tuple[int, ...], tuple[Message, ...]] = OrderedDict()

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> RenderedChat:
        text = "".join(self._text(message) for message in messages)
        text += "<assistant>" if add_generation_prompt else ""
        token_ids = tuple(_id_of(piece) for piece in _PIECE.findall(text))
        self._rendered[token_ids] = tuple(messages)
        if len(self._rendered) > _NUM_REMEMBERED:
            self._rendered.popitem(last=False)
        return RenderedChat(text=text, token_ids=token_ids)

    def count(self, message: Message) -> int:
        return len(_PIECE.findall(self._text(message)))

    def messages_of(self, token_ids: tuple[int, ...]) -> tuple[Message, ...]:
        """Return the messages that were last rendered to these ids."""
        return self._rendered[token_ids]

    @staticmethod
    def _text(message: Message) -> str:
        calls = "".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
        return f"<{message.role}>{message.text}{calls}\n"


@lru_cache(maxsize=65536)
def _id_of(piece: str) -> int:
    return zlib.crc32(piece.encode())


class ServerModel:
    """
    A `LanguageModel` that streams answers from ``POST {url}/chat/completions``.

    Raises:
        ConfigError: httpx is not installed.
        InvalidInputError: the server cannot be reached, or lists no model.
    """

    context_window = 8192

    def __init__(self, url: str, *, model: str | None = None) -> None:
        if find_spec("httpx") is None:
            raise ConfigError("a server needs httpx: pip install httpx")
        import httpx  # noqa: PLC0415 - for this class alone

        self._error: type[Exception] = httpx.HTTPError
        try:
            self._client = httpx.Client(base_url=url.rstrip("/"), timeout=_TIMEOUT_S)
            self.name = model or self._first_model()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
            raise InvalidInputError(
                f"no OpenAI-compatible server answers at {url} ({type(error).__name__}: {error}): "
                "give its URL up to /v1"
            ) from error
        self.counter = EstimatingCounter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def stream(self, request: GenerationRequest) -> Generator[Chunk]:
        """
        Stream one answer.

        Raises:
            InferenceError: the server returns an error, or the connection is lost.
        """
        started = time.perf_counter()
        body = {
            "model": self.name,
            "messages": [_to_openai(one) for one in self.counter.messages_of(request.token_ids)],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": request.sampling.max_tokens,
            "temperature": request.sampling.temperature,
        }
        pieces: list[str] = []
        ttft_s, cached, reason = 0.0, 0, FinishReason.STOP
        try:
            with self._client.stream("POST", "/chat/completions", json=body) as answer:
                answer.raise_for_status()
                for event in _events(answer.iter_lines()):
                    cached = _cached(event) or cached
                    for choice in event.get("choices", ()):
                        if choice.get("finish_reason") == "length":
                            reason = FinishReason.LENGTH
                        piece = choice.get("delta", {}).get("content") or ""
                        if piece:
                            ttft_s = ttft_s or time.perf_counter() - started
                            pieces.append(piece)
                            yield Chunk(text=piece)
        except (self._error, ValueError) as error:
            raise InferenceError(f"{self._client.base_url}: {error}") from error
        usage = Usage(
            prompt_tokens=len(request.token_ids),
            cached_tokens=min(cached, len(request.token_ids)),
            completion_tokens=len(pieces),
            ttft_s=ttft_s,
            total_s=time.perf_counter() - started,
        )
        result = Generation(
            text="".join(pieces), token_ids=(), finish_reason=reason, usage=usage, is_exact=False
        )
        yield Chunk(text="", result=result)

    def discard_prefix(
        self, token_ids: Sequence[int], *, num_kept: int = 0, cache_salt: str = ""
    ) -> None:
        """Do nothing: the cache is the server's own."""

    def forget(self, *, cache_salt: str) -> None:
        """Do nothing: the cache is the server's own."""

    def _first_model(self) -> str:
        answer = self._client.get("/models")
        answer.raise_for_status()
        return str(answer.json()["data"][0]["id"])


def _events(lines: Any) -> Generator[dict[str, Any]]:
    for line in lines:
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data and data != "[DONE]":
            yield json.loads(data)


def _cached(event: dict[str, Any]) -> int:
    details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens") or 0)


def _to_openai(message: Message) -> dict[str, Any]:
    value: dict[str, Any] = {"role": str(message.role), "content": message.text}
    if message.tool_calls:
        value["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        value["tool_call_id"] = message.tool_call_id
    return value
