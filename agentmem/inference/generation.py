"""One request from prompt to result: choose tokens, spell them, know when to stop."""

import time
from collections.abc import Generator

from agentmem.inference.engine import Engine
from agentmem.inference.sampler import Sampler
from agentmem.inference.text_stream import TextStream
from agentmem.inference.tokenizer import ChatTokenizer
from agentmem.protocols import Chunk, GenerationRequest
from agentmem.types import FinishReason, Generation, Usage


class TextGenerator:
    """
    Turns requests into text.

    Args:
        engine: runs the model.
        counter: spells token ids.
        stop_ids: tokens that end a text and are not part of it.
    """

    def __init__(self, engine: Engine, counter: ChatTokenizer, stop_ids: frozenset[int]) -> None:
        self._engine = engine
        self._counter = counter
        self._stop_ids = stop_ids

    def stream(
        self, request: GenerationRequest, *, max_tokens: int, started: float
    ) -> Generator[Chunk, None, None]:
        """
        Yield the text of an admitted request as it comes, and last the result.

        Args:
            request: what is asked.
            max_tokens: how many tokens to generate at most.
            started: when the request came, by ``perf_counter``.
        """
        sampler = Sampler(request.sampling)
        text = TextStream(self._counter.decode, request.sampling.stop)
        sequence = self._engine.start(
            request.token_ids, max_tokens=max_tokens, salt=request.cache_salt
        )
        num_tokens = 0
        reason = FinishReason.LENGTH
        try:
            logits = self._engine.prefill(sequence)
            token_id = sampler.choose(logits)
            ttft_s = time.perf_counter() - started
            while True:
                num_tokens += 1
                piece = "" if token_id in self._stop_ids else text.add(token_id)
                if piece:
                    yield Chunk(text=piece)
                if token_id in self._stop_ids or text.stopped:
                    reason = FinishReason.STOP
                    break
                if num_tokens == max_tokens:
                    break
                token_id = sampler.choose(self._engine.decode(sequence, token_id))
            rest = text.finish()
        finally:
            self._engine.end(sequence)
        usage = Usage(
            prompt_tokens=sequence.num_prompt,
            cached_tokens=sequence.num_cached,
            completion_tokens=num_tokens,
            ttft_s=ttft_s,
            total_s=time.perf_counter() - started,
        )
        ids = text.spelling_ids()
        if not self._counter.control_ids.isdisjoint(ids):
            # In the next prompt it is text, and text has no control tokens.
            ids = ()
        result = Generation(text=text.text, token_ids=ids, finish_reason=reason, usage=usage)
        yield Chunk(text=rest, result=result)
