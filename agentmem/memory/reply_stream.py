"""One reply: streams the model's chunks to the caller, and stores the answer."""

import _thread
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import Protocol, Self

from agentmem.errors import ConfigError, StoreError
from agentmem.machine.logs import log, nature
from agentmem.memory.arguments import thought_and_answer
from agentmem.protocols import Chunk, ChunkStream
from agentmem.types import (
    FinishReason,
    GeneratedIds,
    Generation,
    Message,
    Origin,
    Prompt,
    Reply,
    Role,
    StoredMessage,
    repair_text,
)
from agentmem.types.short_repr import short_repr

_log = logging.getLogger(__name__)

_PATIENCE_S = 0.5
"""Seconds that the finalizer of a dropped stream waits for storing."""


class Answer(Protocol):
    """The answer that a stream stores."""

    def split(self, text: str) -> tuple[str, str]:
        """Separate reasoning from the answer."""

    def store(self, message: Message, origin: Origin) -> StoredMessage:
        """Store the answer, and return the stored message."""

    def apply_policy(self, stored: StoredMessage) -> None:
        """Set the policy's pin of *stored*. It may raise; the answer stays stored, once."""


class ReplyStream:
    """
    The stream of a reply: an iterator over chunks of text.

    After the last chunk `reply` has the complete answer. Closing early (`close()`, the end of a
    ``with`` block, or dropping the iterator), an interrupt or an error ends the generation; the
    text so far is stored as a partial answer, which another answer to the same turn replaces in
    prompts, and `reply` stays unset. A timeout after the first token ends like a complete answer:
    it is stored and in `reply`, with `FinishReason.ABORT`. An empty answer is not stored.

    It can be closed from any thread, also while another waits for the next chunk: that thread's
    iteration ends, and the text so far is stored once, before `close()` returns.

    Args:
        prompt: the prompt.
        chunks: the stream of the model.
        answer: stores the text, complete or partial.
    """

    def __init__(
        self,
        prompt: Prompt,
        chunks: ChunkStream,
        answer: Answer,
    ) -> None:
        self.prompt = prompt
        self._reply: Reply | None = None
        self._given: Message | None = None
        self._answer = answer
        self._chunks = chunks
        # Held by the thread that waits for a chunk. A signal handler may close the stream
        # meanwhile, in the same thread.
        self._reading = threading.RLock()
        self._process = os.getpid()
        self._said: list[str] = []
        self._is_closing = self._is_left = self._is_over = False

    def __repr__(self) -> str:
        num_tokens = self.prompt.num_tokens
        return short_repr("ReplyStream", num_prompt_tokens=num_tokens, is_over=self._is_over)

    @property
    def reply(self) -> Reply:
        """
        The finished answer.

        Raises:
            ConfigError: the stream is not exhausted.
        """
        if self._reply is None:
            raise ConfigError("the reply is not finished: read the stream to its end first")
        return self._reply

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._is_of_parent():
            raise StoreError(
                f"this reply was started in process {self._process}, and this is its fork "
                f"{os.getpid()}: read it there"
            )
        with self._reading:
            while not self._is_over:
                try:
                    text = self._step()
                except BaseException:
                    self._leave()
                    raise
                if text:
                    return text
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_is_over", True) or sys.is_finalizing() or self._is_of_parent():
            return
        # The garbage collector may run within a write of this thread, which would deadlock; and
        # starting a `Thread` takes locks that it may hold too.
        done = threading.Lock()
        done.acquire()
        try:
            _thread.start_new_thread(self._close_and_release, (done,))
        except RuntimeError:  # no new threads at interpreter shutdown
            self.close()
        else:
            done.acquire(timeout=_PATIENCE_S)

    def _close_and_release(self, done: threading.Lock) -> None:
        try:
            self.close()
        finally:
            done.release()

    @property
    def chunks(self) -> ChunkStream:
        """The model's stream, for an event loop that waits without a thread."""
        return self._chunks

    @property
    def is_closing(self) -> bool:
        """Whether it is closing, which includes storing the answer so far."""
        return self._is_closing

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended."""
        return self._is_over

    def close(self) -> None:
        """Cancel a running generation, and store the answer so far. Idempotent."""
        if self._is_of_parent():
            return  # which stores it
        self._is_closing = True
        if not self._is_over:
            self._close_chunks()
        with self._reading:
            self._leave()

    def take(self, chunk: Chunk) -> str:
        """
        Return the text of the next *chunk*; the last one stores the answer.

        Raises:
            StoreError, ConfigError: the answer could not be stored, or the policy failed on it.
        """
        with self._reading:
            result = chunk.result
            is_whole = result is not None and result.finish_reason is not FinishReason.ABORT
            if self._is_over or (self._is_closing and not is_whole):
                return ""
            try:
                if result is not None:
                    self._finish(result)
                    self._is_over = True
                    self._end_chunks()
            except BaseException:
                self._leave()
                raise
            self._said.append(chunk.text)
            return chunk.text

    def _step(self) -> str:
        """Wait for one chunk; an end without a result means a closed stream."""
        chunk = next(self._chunks, None)
        if chunk is None:
            self._leave()
            return ""
        text = self.take(chunk)
        if self._is_closing:
            self._leave()
        return text

    def _leave(self) -> None:
        """End, once, and store a partial answer."""
        with self._reading:
            if self._is_over or self._is_left:
                return
            self._is_left = True
            try:
                self._close_chunks()
                stored = None if self._reply is not None else self._keep_half("".join(self._said))
                if stored is not None:
                    self._answer.apply_policy(stored)
            finally:
                self._is_over = True

    def _is_of_parent(self) -> bool:
        return os.getpid() != self._process

    def _end_chunks(self) -> None:
        """Close an exhausted stream: a generator ends now, not at garbage collection."""
        try:
            self._close_chunks()
        except Exception as error:  # noqa: BLE001 - the answer is stored, whatever a model raises now
            line = "the model raised after a complete answer: {error}"
            log(_log, logging.WARNING, "model_failed_late", line, error=nature(error))

    def _close_chunks(self) -> None:
        # A generator cannot be closed while another thread runs it: that thread closes it.
        with contextlib.suppress(ValueError):
            self._chunks.close()

    def _finish(self, result: Generation) -> None:
        origin = Origin.CUT if result.finish_reason is FinishReason.ABORT else Origin.SAID
        ids = GeneratedIds(fingerprint=self.prompt.fingerprint, token_ids=result.token_ids)
        message = self._store(result.text, ids if result.is_exact else None, origin=origin)
        # Another call may have stored an answer to the same message first, which is then returned.
        is_other = message is not None and message.message != self._given
        self._reply = Reply(
            text=message.message.text
            if message is not None and is_other
            else self._answer.split(result.text)[1],
            finish_reason=result.finish_reason,
            usage=result.usage,
            prompt=self.prompt,
            message=message,
        )
        if message is not None:
            self._answer.apply_policy(message)

    def _keep_half(self, text: str) -> StoredMessage | None:
        """Store a partial answer, which another one may replace."""
        return self._store(text, origin=Origin.PARTIAL)

    def _store(
        self, text: str, ids: GeneratedIds | None = None, *, origin: Origin = Origin.SAID
    ) -> StoredMessage | None:
        """Store an answer; a model's text may be empty, or not storable unchanged."""
        legal = repair_text(text)
        thought, answer = self._answer.split(legal)
        parts = thought_and_answer(thought, answer)
        if not parts:
            return None
        self._given = Message(
            role=Role.ASSISTANT,
            parts=parts,
            # Ids that decode to another text than the stored one would show the model text that is
            # not in the store.
            generated=ids if legal == text else None,
        )
        return self._answer.store(self._given, origin)
