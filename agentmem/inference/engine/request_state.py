"""The state of one request: sampling, detokenization, stop conditions."""

import time
from collections import deque
from collections.abc import Sequence as TokenIds

import torch
from torch import Tensor

from agentmem.errors import DeadlineError, InvalidInputError
from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.inference.engine.signal import Signal
from agentmem.inference.kv_cache.sequence import Sequence
from agentmem.inference.sampling.detokenizer import Detokenizer
from agentmem.inference.sampling.sampler import Sampler
from agentmem.protocols import Chunk, GenerationRequest
from agentmem.types import FinishReason, Generation, Usage
from agentmem.types.checks import is_int


class RequestState:
    """
    Consumes the tokens of one request from the engine, and holds chunks of text for the caller.

    Args:
        request: the request.
        counter: decodes token ids.
        stop_ids: tokens that end a text and are not part of it.
        max_tokens: maximum tokens to generate.
        started: arrival of the request, by ``perf_counter``.
        only_result: whether the caller waits for the result only, not for each chunk.
        parent: the first sample of the same prompt, from which this one is forked.
        fork: index among several samples of one prompt.
        forced_last: the token that the model's settings force at the maximum length.
    """

    def __init__(  # noqa: PLR0913 - the parts of one request, put together once
        self,
        request: GenerationRequest,
        counter: ChatTokenizer,
        stop_ids: frozenset[int],
        *,
        max_tokens: int,
        started: float,
        only_result: bool = False,
        parent: Sequence | None = None,
        fork: int = 0,
        forced_last: int | None = None,
    ) -> None:
        self.request = request
        self._forced_last = None if request.sampling.ignore_eos else forced_last
        self._counter = counter
        own = frozenset() if request.sampling.ignore_eos else stop_ids
        self._stop_ids = own | frozenset(request.sampling.stop_ids)
        self._sampler = Sampler(request.sampling, request.token_ids, fork=fork)
        self._text = Detokenizer(counter.decode, request.sampling.stop)
        self._started = started
        self._timeout_s = request.timeout_s
        self._only_result = only_result
        self._chunks: deque[Chunk] = deque()
        self._error: BaseException | None = None
        self.is_done = False
        self._is_aborted = False
        self.num_tokens = 0
        self._ttft_s = 0.0
        self._taken: list[int] = []
        self._is_taking = False
        self.signal = Signal()
        self.sequence = Sequence(
            token_ids=list(request.token_ids),
            num_prompt=len(request.token_ids),
            max_tokens=max_tokens,
            reader=self,
            salt=request.cache_salt,
            priority=request.priority,
            cache_priority=request.cache_priority,
            parent=parent,
            arrived=time.monotonic(),
        )
        if self._timeout_s is not None:
            self.sequence.deadline = self.sequence.arrived + self._timeout_s

    def is_ready(self) -> bool:
        """Return whether `next_chunk` returns or raises without waiting."""
        return self.is_done if self._only_result else bool(self._chunks) or self.is_done

    def next_chunk(self) -> Chunk:
        """Return the available chunk, oldest first, or raise the error that ended the request."""
        if self._is_aborted and not self._has_result():
            self._finish(FinishReason.ABORT)
        if self._chunks:
            return self._chunks.popleft()
        assert self._error is not None, "it is not ready"
        raise self._error

    @property
    def taken(self) -> list[int] | None:
        """The tokens taken so far; None after an interrupt while taking one."""
        return None if self._is_taking else list(self._taken)

    def take(self, logits: Tensor) -> int | None:  # (vocab,)
        """Sample the next token; None when it completes the text."""
        if self.is_done:
            return None
        self._is_taking = True
        is_forced = (
            self._forced_last is not None and self.num_tokens + 1 == self.sequence.max_tokens
        )
        if is_forced:
            logits = torch.full_like(logits, -torch.inf)
            logits[self._forced_last] = 0.0
        token_id = self._sampler.choose(logits)
        if self.num_tokens == 0:
            self._ttft_s = time.perf_counter() - self._started
        self.num_tokens += 1
        is_stop = token_id in self._stop_ids
        self._give("" if is_stop else self._text.add(token_id))
        if (is_stop and not is_forced) or self._text.stopped:
            self._finish(FinishReason.STOP)
        elif self.num_tokens == self.sequence.max_tokens:
            self._finish(FinishReason.LENGTH)
        self._taken.append(token_id)
        self._is_taking = False
        return None if self.is_done else token_id

    def fail(self, error: BaseException) -> None:
        """Raise *error* at the caller's next wait."""
        if not self.is_done:
            self._error = error
            self.is_done = True
        self.signal.set()

    def expire(self) -> None:
        """Finish with ABORT and the text so far; without any text, with an error."""
        if self.num_tokens == 0:
            self.fail(DeadlineError(timeout_s=self._timeout_s or 0.0))
        elif not self.is_done:
            self._finish(FinishReason.ABORT)

    def abort(self) -> None:
        """Finish with ABORT and the text so far. Must not block: the collector may call it."""
        if not self.is_done:
            self._is_aborted = self.is_done = True
        self.signal.set()

    def _has_result(self) -> bool:
        return bool(self._chunks) and self._chunks[-1].result is not None

    def _give(self, text: str) -> None:
        if text:
            self._chunks.append(Chunk(text=text))
            if not self._only_result:
                self.signal.set()

    def _finish(self, reason: FinishReason) -> None:
        rest = self._text.finish()
        text = self._text.text
        spelling = self._text.spelling_ids()
        ids = spelling or self._text.covering_ids()
        if not self._counter.control_ids.isdisjoint(ids):
            # In the next prompt this is text, and text has no control tokens.
            ids = ()
        usage = Usage(
            prompt_tokens=self.sequence.num_prompt,
            cached_tokens=self.sequence.num_cached or 0,
            completion_tokens=self.num_tokens,
            ttft_s=self._ttft_s,
            total_s=time.perf_counter() - self._started,
        )
        result = Generation(
            text=text,
            token_ids=ids,
            finish_reason=reason,
            usage=usage,
            logprobs=tuple(self._sampler.logprobs),
            is_exact=ids == spelling and bool(ids or not text),
        )
        self._chunks.append(Chunk(text=rest, result=result))
        self.is_done = True
        self.signal.set()


def check_ids(token_ids: TokenIds[int], vocab_size: int) -> None:
    """
    Validate a prompt.

    Raises:
        InvalidInputError: it is empty or has ids outside of the vocabulary.
    """
    if odd := [one for one in token_ids if type(one) is not int]:
        raise InvalidInputError(f"a prompt is a tuple of token ids, got {odd[0]!r:.80} among them")
    if not token_ids or min(token_ids) < 0 or max(token_ids) >= vocab_size:
        raise InvalidInputError(
            f"a prompt needs token ids from 0 to {vocab_size - 1}, got "
            + (f"{min(token_ids)} to {max(token_ids)}" if token_ids else "none")
        )


def check_samples(num: int, limit: int) -> None:
    """
    Validate a number of samples.

    Raises:
        InvalidInputError: it is not an integer from 1 to *limit*.
    """
    if not is_int(num) or not 1 <= num <= limit:
        raise InvalidInputError(
            f"num must be an integer from 1 to {limit} (InferenceConfig.max_waiting), "
            f"got {num!r:.80}"
        )
