"""Engines of transformers with a cache of their own: continuous batching, and one kept cache."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from engines import Engine, Measured, Prompts
from transformers import ContinuousBatchingConfig, DynamicCache, GenerationConfig

_PAGE = 32
"""Tokens of a page; a prefix is shared by whole pages."""


def continuous(module: Any, *, max_tokens: int) -> Engine:
    """
    Give transformers' own continuous batching, with its prefix primed: others follow the first.

    Its set-up and its end are not counted, and each run has new pages. Prefilled is what went
    through the model, but for one token for each later one that came out.

    Args:
        module: the model; its attention stays as it is.
        max_tokens: tokens that the pages hold.
    """

    def run(prompts: Prompts, num_new: int) -> Measured:
        with _manager(module, max_tokens) as manager, _counted(module) as passes:
            measured = _follow(manager, prompts, num_new)
        measured.prefill_tokens = sum(passes) - len(prompts) * (num_new - 1)
        return measured

    return run


def _follow(manager: Any, prompts: Prompts, num_new: int) -> Measured:
    """Hand in the first prompt, and at its first token the others; wait for all."""
    options = {"max_new_tokens": num_new, "eos_token_id": -1, "streaming": True}
    started = time.perf_counter()
    names = [manager.add_request(list(prompts[0]), **options)]
    first: dict[str, float] = {}
    done: dict[str, tuple[int, ...]] = {}
    while len(done) < len(prompts):
        output = manager.get_result(timeout=1)
        if output is None:
            assert manager.is_running(), "transformers' continuous batching has ended"
            continue
        if output.error is not None:
            raise RuntimeError(f"transformers' continuous batching failed: {output.error}")
        first.setdefault(output.request_id, time.perf_counter() - started)
        if len(names) < len(prompts):
            names += [manager.add_request(list(prompt), **options) for prompt in prompts[1:]]
        if output.is_finished():
            done[output.request_id] = tuple(output.generated_tokens)
    return Measured(
        wall_s=time.perf_counter() - started,
        ttft_s=[first[name] for name in names],
        prefill_tokens=0,
        answers=[done[name][: num_new - 1] for name in names],
    )


@contextmanager
def _manager(module: Any, max_tokens: int) -> Iterator[Any]:
    """Run its thread, with as many pages as *max_tokens* need."""
    attention = module.config._attn_implementation  # noqa: SLF001 - it has no public name
    manager = module.init_continuous_batching(
        generation_config=GenerationConfig(do_sample=False, eos_token_id=-1),
        continuous_batching_config=ContinuousBatchingConfig(
            page_size=_PAGE,
            num_blocks=max_tokens // _PAGE,
            max_batch_tokens=4096,
            auto_switch_to_flash=False,
        ),
    )
    manager.warmup()
    manager.start()
    try:
        yield manager
    finally:
        manager.stop(block=True)
        now = module.config._attn_implementation  # noqa: SLF001 - it has no public name
        assert now == attention, f"the model is left with {now} attention"


@contextmanager
def _counted(module: Any) -> Iterator[list[int]]:
    """Collect how many tokens went through the model in each pass."""
    passes: list[int] = []

    def note(_: object, __: object, options: dict[str, Any]) -> None:
        passes.append(options["input_ids"].numel())

    hook = module.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield passes
    finally:
        hook.remove()


def kept(module: Any) -> Engine:
    """Give one `DynamicCache` that is kept, for prompts that each go on from the one before."""
    known: list[int] = []
    caches: list[DynamicCache] = []

    @torch.inference_mode()
    def run(prompts: Prompts, num_new: int) -> Measured:
        [prompt] = prompts
        started = time.perf_counter()
        if not caches or tuple(known) != prompt[: len(known)]:
            caches[:] = [DynamicCache(config=module.config)]
            known.clear()
        ids = torch.tensor([prompt[len(known) :]], device=module.device)
        measured = Measured(0.0, [], ids.numel())
        chosen: list[int] = []
        while True:
            logits = module(input_ids=ids, cache=caches[0], logits_to_keep=1).logits
            ids = logits[:, -1].argmax(-1, keepdim=True)
            chosen.append(int(ids))
            if len(chosen) == 1:
                measured.ttft_s = [time.perf_counter() - started]
            if len(chosen) == num_new:
                break
        measured.wall_s = time.perf_counter() - started
        measured.answers = [tuple(chosen[:-1])]
        known[:] = [*prompt, *chosen[:-1]]
        return measured

    return run
