"""Engines to measure beside agentmem's, each fed the same token ids; all greedy, no early end."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache

from agentmem import Sampling
from agentmem.config import InferenceConfig
from agentmem.inference import LocalModel
from agentmem.protocols import GenerationRequest

Prompts = Sequence[tuple[int, ...]]


@dataclass(slots=True)
class Measured:
    """One run of one engine: seconds from the start to the end, and to each first token."""

    wall_s: float
    ttft_s: list[float]
    prefill_tokens: int
    answers: list[tuple[int, ...]] = field(default_factory=list)
    """What was generated, but for the last token of each, which no pass has seen."""

    extra: dict[str, Any] = field(default_factory=dict)


Engine = Callable[[Prompts, int], Measured]
"""Answers prompts with that many tokens each."""

WEIGHTS = ("auto", "plain", "int8", "int4")


@contextmanager
def loaded(weights: str) -> Iterator[tuple[LocalModel, Any]]:
    """Give our model with such *weights*, and a transformers module with plain ones for peers."""
    with LocalModel.load(config=InferenceConfig(weights=weights)) as model:
        config = InferenceConfig(weights="plain", dtype=model.dtype, device=model.device)
        with LocalModel.load(config=config) as plain:
            yield model, plain._running()._model._module  # noqa: SLF001 - as it was loaded


def agentmem(model: LocalModel) -> Engine:
    """Give our own engine; all requests are handed in at once."""

    def run(prompts: Prompts, num_new: int) -> Measured:
        engine = model._running()  # noqa: SLF001 - steps are no part of the interface
        before = model.stats()
        sampling = Sampling(max_tokens=num_new, ignore_eos=True)
        started = time.perf_counter()
        pending = [
            model.submit(GenerationRequest(token_ids=prompt, sampling=sampling, cache_salt=""))
            for prompt in prompts
        ]
        waste: list[float] = []
        while engine.step():
            usage = model.kv_usage()
            if usage.in_use:
                waste.append(1 - usage.tokens / (usage.in_use * usage.block_size))
        results = [one.result() for one in pending]
        wall_s = time.perf_counter() - started
        after = model.stats()
        return Measured(
            wall_s=wall_s,
            ttft_s=[result.usage.ttft_s for result in results],
            prefill_tokens=after.prefill_tokens - before.prefill_tokens,
            # A result leaves out what is no text, such as the end of a turn.
            answers=[
                tuple(one._output.sequence.token_ids[len(prompt) :])  # noqa: SLF001 - so look
                for one, prompt in zip(pending, prompts, strict=True)
            ],
            extra={
                "kv_waste": round(sorted(waste)[len(waste) // 2], 4),
                "preemptions": after.preemptions - before.preemptions,
            },
        )

    return run


def generate(module: Any) -> Engine:
    """Give transformers' `generate`, one prompt after the other, with no reuse."""

    def run(prompts: Prompts, num_new: int) -> Measured:
        started = time.perf_counter()
        measured = Measured(0.0, [], 0)
        for prompt in prompts:
            ids = torch.tensor([prompt], device=module.device)
            first = _FirstToken()
            out = module.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=num_new,
                min_new_tokens=num_new,
                do_sample=False,
                streamer=first,
            )
            measured.ttft_s.append(first.at - started)
            measured.prefill_tokens += len(prompt)
            measured.answers.append(tuple(out[0, len(prompt) : -1].tolist()))
        measured.wall_s = time.perf_counter() - started
        return measured

    return run


class _FirstToken:
    """A streamer that notes when the first new token came."""

    def __init__(self) -> None:
        self.at = 0.0
        self._num_calls = 0

    def put(self, _: object) -> None:
        self._num_calls += 1
        if self._num_calls == 2:  # the first call brings the prompt
            self.at = time.perf_counter()

    def end(self) -> None:
        """Nothing is held back."""


def repeated(module: Any) -> Engine:
    """Give transformers with the shared prefix computed once and repeated for one batch."""

    @torch.inference_mode()
    def run(prompts: Prompts, num_new: int) -> Measured:
        started = time.perf_counter()
        shared = _common(prompts)
        cache = DynamicCache(config=module.config)
        prefix = torch.tensor([prompts[0][:shared]], device=module.device)
        module(input_ids=prefix, cache=cache, use_cache=True, logits_to_keep=1)
        cache.batch_repeat_interleave(len(prompts))
        rest = [prompt[shared:] for prompt in prompts]
        longest = max(map(len, rest))
        assert min(map(len, rest)) == longest, "rows of one length, as the workload has them"
        ids = torch.tensor(rest, device=module.device)
        answers: list[list[int]] = [[] for _ in prompts]
        ttft_s = 0.0
        for _ in range(num_new):
            logits = module(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1).logits
            ids = logits[:, -1].argmax(-1, keepdim=True)
            ttft_s = ttft_s or time.perf_counter() - started
            for answer, token in zip(answers, ids[:, 0].tolist(), strict=True):
                answer.append(token)
        return Measured(
            wall_s=time.perf_counter() - started,
            ttft_s=[ttft_s] * len(prompts),
            prefill_tokens=shared + sum(map(len, rest)),
            answers=[tuple(answer[:-1]) for answer in answers],
        )

    return run


def _common(prompts: Prompts) -> int:
    """Count what all begin with; the last token of each is left over."""
    shared, most = 0, min(map(len, prompts)) - 1
    while shared < most and all(prompt[shared] == prompts[0][shared] for prompt in prompts):
        shared += 1
    return shared


def llama_cpp(gguf: Path, *, context: int) -> Engine:
    """
    Give llama.cpp's server from the xllamacpp wheel: one slot with its prefix cache.

    With several slots it computes the prefix once per slot, which takes longer here. It has a
    process of its own: in ours, and even idle, it made every other engine slower by a quarter.
    """
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def run(prompts: Prompts, num_new: int) -> Measured:
        return pool.submit(_run_llama_cpp, gguf, context, prompts, num_new).result()

    return run


@cache
def _llama_cpp_server(gguf: Path, context: int) -> Any:
    import xllamacpp  # noqa: PLC0415 - a peer that need not be installed

    params = xllamacpp.CommonParams()
    params.model.path = str(gguf)
    params.n_ctx = context
    params.n_parallel = 1
    params.warmup = True
    params.cpuparams.n_threads = torch.get_num_threads()
    params.verbosity = -1
    return xllamacpp.Server(params)


def _run_llama_cpp(gguf: Path, context: int, prompts: Prompts, num_new: int) -> Measured:
    server = _llama_cpp_server(gguf, context)
    started = time.perf_counter()
    measured = Measured(0.0, [], 0)
    for prompt in prompts:
        began = time.perf_counter()
        answer = server.handle_completions(
            {
                "prompt": list(prompt),
                "n_predict": num_new,
                "max_tokens": num_new,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": True,
                # The wheel gives ids only along with probabilities; these cost nothing.
                "n_probs": 1,
                "post_sampling_probs": True,
                "stream": False,
            }
        )
        timings = answer["timings"]
        measured.ttft_s.append(began - started + timings["prompt_ms"] / 1000)
        measured.prefill_tokens += timings["prompt_n"]
        assert timings["predicted_n"] == num_new, f"llama.cpp ended early: {timings}"
        said = answer["choices"][0]["logprobs"]["content"]
        measured.answers.append(tuple(token["id"] for token in said[: num_new - 1]))
    measured.wall_s = time.perf_counter() - started
    return measured
