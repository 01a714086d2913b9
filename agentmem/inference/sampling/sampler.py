"""From logits to a token id. Each request has a sampler with a separate random generator."""

from collections.abc import Sequence

import torch
from torch import Tensor

from agentmem.config import Sampling
from agentmem.types import TokenLogprob


class Sampler:
    """
    Samples tokens for one request.

    Each step draws one random number per token from the request's generator, on the CPU, so a seed
    gives the same text under any concurrent load and on any device.

    Args:
        sampling: the sampling parameters.
        prompt: the ids of the prompt, for the repetition penalty.
        fork: index among several samples of one prompt; each has a different seed.
    """

    def __init__(self, sampling: Sampling, prompt: Sequence[int] = (), *, fork: int = 0) -> None:
        self._sampling = sampling
        self._generator = torch.Generator()
        self.logprobs: list[TokenLogprob] = []
        """The requested log-probabilities of each sampled token."""

        self._seen: set[int] = set(prompt) if sampling.repetition_penalty != 1 else set()
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(_fork_seed(sampling.seed, fork))

    def choose(self, logits: Tensor) -> int:  # (vocab,)
        """Sample the next token."""
        sampling = self._sampling
        scores = logits if sampling.repetition_penalty == 1 else self._penalized(logits)
        token_id = int(scores.argmax()) if sampling.temperature == 0 else self._draw(scores)
        if sampling.repetition_penalty != 1:
            self._seen.add(token_id)
        if sampling.logprobs is not None:
            self.logprobs.append(_logprob(logits, token_id, sampling.logprobs))
        return token_id

    def _draw(self, logits: Tensor) -> int:
        """
        Sample by the Gumbel-max trick in its exponential form: argmax of p / E, E ~ Exp(1).

        It is exact (Efraimidis and Spirakis 2006, doi:10.1016/j.ipl.2005.11.003). Inverting the
        cumulative distribution would be exact too, but there the rounding of any logit moves every
        boundary: in another batch the same seed gives another token once in 10,000.
        """
        probabilities, ids = self._candidates(logits)  # (kept,), (kept,) or None
        times = torch.empty(logits.numel(), dtype=torch.float64)
        times.exponential_(generator=self._generator)
        if ids is None:
            return int((probabilities / times).argmax())
        return int(ids[(probabilities / times[ids]).argmax()])

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Apply the top-k, top-p and min-p filters, in this order."""
        scores = (logits.double() - logits.max().double()) / self._sampling.temperature
        top_k, top_p, min_p = self._sampling.top_k, self._sampling.top_p, self._sampling.min_p
        if (top_k is None or top_k >= scores.numel()) and top_p == 1 and min_p == 0:
            return scores.softmax(0), None
        if top_k is not None and top_k < scores.numel():
            # Ties at the cutoff go to the lowest ids, whatever order `topk` has.
            edge = scores.topk(top_k).values[-1]
            keep = (scores >= edge).nonzero()[:, 0]
            scores, ids = scores[keep], keep
        else:
            ids = torch.arange(scores.numel())
        scores, order = scores.sort(descending=True, stable=True)
        scores, ids = scores[:top_k], ids[order][:top_k]
        probabilities = scores.softmax(0)
        if top_p < 1:
            # A token is kept while the sum before it is below top_p, so at least one is.
            before = probabilities.cumsum(0) - probabilities
            probabilities = probabilities[: int((before < top_p).sum())]
        if min_p > 0:
            probabilities = probabilities[probabilities >= min_p * probabilities[0]]
        return probabilities, ids[: len(probabilities)]

    def _penalized(self, logits: Tensor) -> Tensor:
        """Lower the scores of tokens so far (Keskar et al. 2019, arXiv:1909.05858, section 4.1)."""
        seen = torch.tensor(sorted(self._seen), dtype=torch.long)
        scores = logits.clone()
        said = scores[seen]
        penalty = self._sampling.repetition_penalty
        scores[seen] = torch.where(said > 0, said / penalty, said * penalty)
        return scores


def _fork_seed(seed: int, fork: int) -> int:
    """Derive the seed of one of several samples; the first has the seed itself."""
    # Steps of the golden ratio (Knuth, TAOCP 6.4) keep derived seeds of near seeds apart.
    return (seed + fork * 0x9E3779B97F4A7C15) % (1 << 63)


def _logprob(logits: Tensor, token_id: int, num_top: int) -> TokenLogprob:
    logs = logits.double().log_softmax(0)
    top = logs.topk(min(num_top, logs.numel())) if num_top else None
    return TokenLogprob(
        token_id=token_id,
        logprob=float(logs[token_id]),
        top=()
        if top is None
        else tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True)),
    )
