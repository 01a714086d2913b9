"""
Random requests against an engine with a third of the memory that they need: nothing may be lost.

Sixteen threads mix all calls (generate, agenerate, stream, samples, submit, cancel, close, discard,
forget), some with a shared prefix, a seed, a stop string, a deadline or several answers; some are
cancelled before, during or after their answer, some are just dropped. Now and then a step fails: in
a pass of the model, as a block is written or published, or as the queue is read. After each request
the block accounts are checked. In the end every answer that came is compared with that of a fresh
model with room for everything, which answers it alone.

Good is ``leaked_blocks``, ``wrong``, ``hung`` and ``broken`` at 0. The model is a small random one
in float32: what is tried is the engine.
"""

import argparse
import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace

import torch
from report import print_json
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from agentmem import InferenceConfig, Sampling
from agentmem.errors import AdmissionError, DeadlineError
from agentmem.inference import DEFAULT_MODEL, LocalModel, weights
from agentmem.protocols import GenerationRequest
from agentmem.types import FinishReason, Generation

NUM_THREADS = 16
NUM_BLOCKS = 80
BLOCK_SIZE = 8
_HUNG_S = 300.0
_VOCAB = 2048


class Soak:
    """
    One run.

    Args:
        model: whose pool is small.
        num_requests: how many to hand in.
        seed: of the choices; threads take turns as they like, so a run cannot be repeated exactly.
    """

    def __init__(self, model: LocalModel, num_requests: int, seed: int) -> None:
        self.model = model
        self._numbers = iter(range(num_requests))
        self._seed = seed
        self._lock = threading.Lock()
        self.answers: list[tuple[GenerationRequest, int, list[Generation]]] = []
        self.fates: Counter[str] = Counter()
        self.broken: list[str] = []

    def run(self) -> int:
        """Play all requests; give the number of threads that hang."""
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(NUM_THREADS)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + _HUNG_S
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        return sum(thread.is_alive() for thread in threads)

    def _work(self) -> None:
        while True:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            rng = random.Random(self._seed * 1_000_003 + number)
            try:
                fate = self._play(rng, make_request(rng))
                self.model.check()
            except Exception as error:  # noqa: BLE001 - what broke is the result
                fate = "broken"
                self.broken.append(f"request {number}: {type(error).__name__}: {error}")
            with self._lock:
                self.fates[fate] += 1

    def _play(self, rng: random.Random, request: GenerationRequest) -> str:
        try:
            kind = rng.random()
            if kind < 0.1:
                num = rng.randint(2, 3)
                self._keep(request, num, self.model.samples(request, num))
                return "forked"
            if kind < 0.4:
                return self._leave(rng, request)
            if kind < 0.45:
                self.model.discard_prefix(request.token_ids, cache_salt=request.cache_salt)
            return self._wait(rng, request)
        except AdmissionError:
            return "refused"
        except DeadlineError:
            return "expired"
        except InjectedError:
            return "failed on purpose"

    def _leave(self, rng: random.Random, request: GenerationRequest) -> str:
        """Read a part of an answer and cancel it, or drop it: the collector ends it then."""
        pending = self.model.submit(request)
        for _ in range(rng.randint(0, 6)):
            next(pending, None)
        if rng.random() < 0.5:
            pending.cancel()
            pending.cancel()
        return "cancelled"

    def _wait(self, rng: random.Random, request: GenerationRequest) -> str:
        """Wait for a whole answer, in one of the ways there are."""
        kind = rng.randint(0, 4)
        if kind == 0:
            result = self.model.generate(request)
        elif kind == 1:
            result = asyncio.run(self.model.agenerate(request))
        elif kind == 2:
            result = self.model.submit(request).result()
        elif kind == 3:
            stream = self.model.stream(request)
            result = next(one.result for one in stream if one.result is not None)
        else:
            stream = self.model.stream(request)
            closer = threading.Timer(rng.random() / 50, stream.close)
            closer.start()
            for _ in stream:
                pass
            closer.join()
            return "closed"
        if result.finish_reason is FinishReason.ABORT:
            return "expired"
        self._keep(request, 1, [result])
        return "finished"

    def _keep(self, request: GenerationRequest, num: int, results: list[Generation]) -> None:
        with self._lock:
            if all(one.finish_reason is not FinishReason.ABORT for one in results):
                self.answers.append((request, num, results))


class InjectedError(RuntimeError):
    """A step that fails on purpose."""


def inject_faults(model: LocalModel, seed: int, share: float) -> Counter[str]:
    """Let a *share* of the calls at four places of a step fail; return the counts, by place."""
    rng, faults = random.Random(seed), Counter()
    engine = model._running()  # noqa: SLF001 - the insides are what is to fail
    places = (
        (engine._model, "forward"),  # noqa: SLF001 - as above
        (engine._tensors, "write"),  # noqa: SLF001 - as above
        (engine._prefixes, "insert"),  # noqa: SLF001 - as above
        (engine._scheduler, "prefills"),  # noqa: SLF001 - as above
    )
    for owner, name in places:
        real = getattr(owner, name)

        def failing(
            *args: object, real: Callable[..., object] = real, name: str = name, **kw: object
        ) -> object:
            if rng.random() < share:
                faults[name] += 1
                raise InjectedError(name)
            return real(*args, **kw)

        setattr(owner, name, failing)
    return faults


def make_request(rng: random.Random) -> GenerationRequest:
    """Make a request out of a few prefixes, so that many are shared."""
    prefix = random.Random(rng.randint(0, 5)).choices(range(_VOCAB), k=rng.choice((0, 40, 90)))
    own = rng.choices(range(_VOCAB), k=rng.randint(1, 60))
    if rng.random() < 0.03:
        own = own * 40  # longer than the pool: to be refused
    drawn = rng.random() < 0.4
    return GenerationRequest(
        token_ids=tuple(prefix + own),
        sampling=Sampling(
            max_tokens=rng.randint(1, 40),
            temperature=0.8 if drawn else 0.0,
            top_p=0.9 if drawn else 1.0,
            seed=rng.randint(0, 99) if drawn else None,
            stop=("e",) if rng.random() < 0.5 else (),
        ),
        cache_salt=rng.choice(("a", "b")),
        priority=rng.randint(0, 2),
        timeout_s=rng.choice((0.001, 0.05)) if rng.random() < 0.1 else None,
    )


def make_model(module: LlamaForCausalLM, *, num_blocks: int) -> LocalModel:
    """Make a model with a pool of that many blocks, and as much for the buffers of runs."""
    tokenizer = AutoTokenizer.from_pretrained(weights.find_model(DEFAULT_MODEL, lambda *_: None))
    config = module.config
    head = 2 * config.num_key_value_heads * config.head_dim * config.num_hidden_layers * 4
    pool = InferenceConfig(
        dtype="float32",
        block_size=BLOCK_SIZE,
        kv_bytes=head * BLOCK_SIZE * 2 * (num_blocks + 1),
        prefill_chunk=64,
        max_num_batched_tokens=128,
        max_num_seqs=NUM_THREADS * 3,
    )
    return LocalModel(module, tokenizer, name="random", config=pool)


def make_module() -> LlamaForCausalLM:
    """Make a small random model that does not say the same all the time."""
    torch.manual_seed(0)
    module = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=_VOCAB,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=1024,
        )
    ).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
    return module


def count_wrong(soak: Soak, fresh: LocalModel) -> int:
    """Compare each answer with that of a model which has nothing else to do."""
    wrong = 0
    for request, num, results in soak.answers:
        if request.sampling.temperature > 0 and request.sampling.seed is None:
            continue
        alone = replace(request, timeout_s=None, cache_salt=str(wrong))
        expected = [one.text for one in fresh.samples(alone, num)]
        wrong += expected != [one.text for one in results]
    return wrong


def main() -> None:
    """Play, check, and print the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--faults", type=float, default=0.003, help="share of calls that fail")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    module = make_module()
    # Sixteen threads, some with three answers of up to 190 tokens, come to need about 250 blocks.
    with (
        make_model(module, num_blocks=NUM_BLOCKS) as model,
        make_model(module, num_blocks=600) as fresh,
    ):
        soak = Soak(model, options.requests, options.seed)
        faults = inject_faults(model, options.seed, options.faults)
        started = time.perf_counter()
        hung = soak.run()
        wall_s = time.perf_counter() - started
        leaked = model.kv_usage().in_use
        model.check()
        wrong = count_wrong(soak, fresh)
        counts = asdict(model.stats())
        for line in soak.broken[:10]:
            print(line)
        print(f"{dict(soak.fates)} in {wall_s:.1f} s; {counts}")
        print_json(
            {
                "benchmark": "soak_engine",
                "requests": options.requests,
                "leaked_blocks": leaked,
                "wrong": wrong,
                "hung": hung,
                "broken": len(soak.broken),
                "finished": soak.fates["finished"] + soak.fates["forked"],
                "compared": len(soak.answers),
                "faults": dict(faults),
                "fates": dict(soak.fates),
                "counts": counts,
                "wall_s": round(wall_s, 2),
                "seed": options.seed,
            }
        )


if __name__ == "__main__":
    main()
