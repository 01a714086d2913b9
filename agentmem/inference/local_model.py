"""A model in this process: load, warm up, generate, close."""

import gc
import logging
import time
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as TokenIds
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentmem.config import InferenceConfig
from agentmem.errors import InferenceError
from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.inference.engine.async_driver import AsyncDriver
from agentmem.inference.engine.engine import Engine
from agentmem.inference.engine.map_requests import OnResult, map_requests
from agentmem.inference.engine.request_handle import RequestHandle
from agentmem.inference.engine.request_state import RequestState, check_ids, check_samples
from agentmem.inference.engine.stats import ModelStats
from agentmem.inference.kv_cache.sequence import Sequence
from agentmem.inference.kv_cache.usage import KVUsage
from agentmem.inference.runner.causal_model import CausalModel
from agentmem.inference.weights import find as weights
from agentmem.inference.weights.gguf import OnProgress
from agentmem.inference.weights.load import choose_dtype, load_module
from agentmem.machine.device import choose_device, give_back
from agentmem.machine.logs import log
from agentmem.machine.quiet import quiet_libraries
from agentmem.protocols import GenerationRequest
from agentmem.types import Generation, ModelHealth
from agentmem.types.short_repr import short_repr

_DEFAULT_WINDOW = 4096
_log = logging.getLogger(__name__)


class LocalModel:
    """
    A chat model in this process, with its KV pool and prefix cache.

    Thread-safe, also for coroutines: concurrent requests are batched. A forked process cannot use
    it.

    Args:
        module: a transformers model with a language modelling head, on its device.
        tokenizer: its tokenizer.
        name: its name.
        config: its settings; device and dtype are those of *module*.
        fingerprint: identifies the weights.
    """

    def __init__(
        self,
        module: Any,
        tokenizer: Any,
        *,
        name: str = "local",
        config: InferenceConfig | None = None,
        fingerprint: str = "",
    ) -> None:
        config = config or InferenceConfig()
        self._name = name
        self._counter = ChatTokenizer(tokenizer)
        model = CausalModel(module)
        self._weight_bytes = sum(one.numel() * one.element_size() for one in module.parameters())
        self._vocab_size = model.vocab_size
        self._context_window = model.context_window or _DEFAULT_WINDOW
        eos = {tokenizer.eos_token_id} - {None}
        self._stop_ids = model.eos_ids | eos | self._counter.turn_end_ids()
        self._forced_last = model.forced_last_id
        self._device, self._dtype = model.device, model.dtype
        self._max_num_seqs, self._max_waiting = config.max_num_seqs, config.max_waiting
        engine = Engine(model, config, fingerprint=fingerprint, context_window=self._context_window)
        self._engine: Engine | None = engine
        self._driver = AsyncDriver(engine)

    def __repr__(self) -> str:
        return short_repr("LocalModel", self.name, device=self.device, dtype=str(self._dtype))

    @classmethod
    def load(
        cls,
        name_or_path: str | Path = weights.DEFAULT_MODEL,
        *,
        config: InferenceConfig | None = None,
        on_progress: OnProgress | None = None,
    ) -> Self:
        """
        Find, load and warm up a model.

        Args:
            name_or_path: a folder with safetensors, a ``.gguf`` file, or a name on the hub. The
                default model also comes from its wheel where the hub cannot be reached.
            config: device, dtype and memory.
            on_progress: callback(stage, fraction), the fraction of the whole work done.

        Raises:
            ModelLoadError: the model cannot be loaded.
            ConfigError: the device does not exist, or the pool is too small for one block.
        """
        config = config or InferenceConfig()
        report = on_progress or _ignore
        device = choose_device(config.device)
        started = time.monotonic()
        report("finding", 0.0)
        folder = weights.find_model(str(name_or_path), report)
        report("loading", 0.5)
        dtype = choose_dtype(config.dtype, device)
        module, tokenizer = load_module(folder, device, dtype, weights=config.weights)
        report("warming up", 0.9)
        with quiet_libraries():
            model = cls(
                module,
                tokenizer,
                name=str(name_or_path),
                config=config,
                fingerprint=weights.fingerprint(folder),
            )
        model._log_loaded(time.monotonic() - started)
        report("ready", 1.0)
        return model

    def _log_loaded(self, seconds: float) -> None:
        log(
            _log,
            logging.INFO,
            "model_loaded",
            "the model {model} was loaded in {seconds:.1f} s",
            model=self._name,
            device=self.device,
            dtype=self.dtype,
            weight_bytes=self._weight_bytes,
            max_kv_bytes=self.kv_usage().max_kv_bytes,
            seconds=seconds,
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def device(self) -> str:
        """The device, such as ``cpu`` or ``cuda:0``."""
        return str(self._device)

    @property
    def dtype(self) -> str:
        """The dtype of the computation, such as ``bfloat16``."""
        return str(self._dtype).removeprefix("torch.")

    @property
    def context_window(self) -> int:
        """Maximum tokens of prompt and reply together."""
        return self._context_window

    @property
    def counter(self) -> ChatTokenizer:
        """The token counter of this model."""
        return self._counter

    @property
    def refused_reuse(self) -> Mapping[str, int]:
        """Requests that could not reuse a prefix, by reason; empty for most models."""
        return self._running().stats().refused_reuse

    def stream(self, request: GenerationRequest) -> RequestHandle:
        """
        Generate a reply; the last chunk carries the result.

        Closing the iterator, from any thread, cancels the request and releases its memory;
        computed blocks stay cached.

        Raises:
            InvalidInputError: the prompt is empty or has ids outside of the vocabulary.
            AdmissionError: prompt and reply can never fit.
            QueueFullError: the queue of waiting requests is full.
            DeadlineError: timeout before the first token; raised by the iterator.
        """
        return self.submit(request)

    def generate(self, request: GenerationRequest) -> Generation:
        """
        Generate a reply and return the result.

        Raises:
            InvalidInputError, AdmissionError, QueueFullError, DeadlineError: as `stream` does.
        """
        return self._hand_in(self._output(request, only_result=True)).result()

    def submit(self, request: GenerationRequest) -> RequestHandle:
        """
        Submit a request; wait for it later, from a thread or a coroutine.

        It is computed, batched with others, while any of them is waited for.

        Raises:
            InvalidInputError, AdmissionError, QueueFullError: as `stream` does.
        """
        return self._hand_in(self._output(request))

    async def agenerate(self, request: GenerationRequest) -> Generation:
        """Async form of `generate`."""
        return await self._hand_in(self._output(request, only_result=True)).aresult()

    def samples(self, request: GenerationRequest, num: int) -> list[Generation]:
        """
        Return *num* samples for one prompt, which is prefilled once.

        The first one equals that of `generate`; the others have different seeds, derived from the
        request's if it has one.

        Raises:
            InvalidInputError, AdmissionError, QueueFullError, DeadlineError: as `generate` does.
        """
        check_samples(num, self._max_waiting)
        first = self._output(request)
        forks = [self._output(request, parent=first.sequence, fork=fork) for fork in range(1, num)]
        return [one.result() for one in [self._hand_in(output) for output in (first, *forks)]]

    def map(
        self,
        requests: Iterable[GenerationRequest],
        *,
        on_result: OnResult | None = None,
    ) -> list[Generation]:
        """
        Answer all *requests*, as many concurrently as the engine allows; results in input order.

        One that fails is a result with `FinishReason.ERROR` and its message in ``error``.

        Args:
            requests: the requests.
            on_result: callback(done, total), after each result.
        """
        return map_requests(
            self.submit,
            requests,
            at_once=2 * self._max_num_seqs,
            on_result=on_result,
        )

    def _hand_in(self, output: RequestState) -> RequestHandle:
        return RequestHandle(self._running(), self._driver, output)

    def _output(
        self,
        request: GenerationRequest,
        *,
        only_result: bool = False,
        parent: Sequence | None = None,
        fork: int = 0,
    ) -> RequestState:
        started = time.perf_counter()
        check_ids(request.token_ids, self._vocab_size)
        max_tokens = self._running().admit(len(request.token_ids), request.sampling.max_tokens)
        return RequestState(
            request,
            self._counter,
            self._stop_ids,
            max_tokens=max_tokens,
            started=started,
            only_result=only_result,
            parent=parent,
            fork=fork,
            forced_last=self._forced_last,
        )

    def discard_prefix(
        self, token_ids: TokenIds[int], *, num_kept: int = 0, cache_salt: str = ""
    ) -> None:
        """
        Evict the cache of *token_ids* after the first *num_kept* tokens.

        Blocks in use, and blocks that another cached text continues, are kept.
        """
        self._running().discard(token_ids, num_kept=num_kept, salt=cache_salt)

    def forget(self, *, cache_salt: str) -> None:
        """
        Evict all keys and values cached under *cache_salt*, and zero their memory.

        The tokenizer's caches are cleared for all users.
        """
        self._running().forget(salt=cache_salt)
        self._counter.forget()

    def kv_usage(self) -> KVUsage:
        """Return the usage of the KV pool."""
        return self._running().usage()

    def stats(self) -> ModelStats:
        """
        Return the counters since it was loaded. Cheap: it does not wait for a step.

        Raises:
            InferenceError: the model is closed, or this process is a fork of its own.
        """
        return self._running().stats()

    def health(self) -> ModelHealth:
        """Return the current load, without blocking, also during a long step and after `close`."""
        engine = self._engine
        if engine is None:
            error = InferenceError(f"the model {self._name} is closed: load it again")
            return ModelHealth(name=self._name, is_closed=True, error=error)
        return engine.health(self._name)

    def check(self) -> None:
        """Assert the invariants of the KV accounting. For tests and idle loops."""
        self._running().check()

    def close(self) -> None:
        """Release weights and KV memory. Idempotent; the model cannot be used afterwards."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        started = time.monotonic()
        kv_bytes = engine.kv_bytes
        engine.close()
        gc.collect()
        give_back(self._device)
        log(
            _log,
            logging.INFO,
            "model_unloaded",
            "the model {model} was unloaded",
            model=self._name,
            weight_bytes=self._weight_bytes,
            kv_bytes=kv_bytes,
            seconds=time.monotonic() - started,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _running(self) -> Engine:
        engine = self._engine
        if engine is None:
            raise InferenceError(f"the model {self._name} is closed: load it again")
        return engine


def _ignore(stage: str, fraction: float) -> None:
    """No progress callback."""
