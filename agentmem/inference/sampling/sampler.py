"""From logits to a token id. Each request has its own sampler, with its own generator."""

from collections.abc import Sequence

import torch
from torch import Tensor

from agentmem.config import Sampling
from agentmem.types import TokenLogprob


class Sampler:
    """
    Chooses tokens for one request.

    Each choice takes one number for each token from the request's own generator, on the CPU, so
    a seed gives the same text whatever else runs and on whatever device the model is.

    Args:
        sampling: how to choose.
        prompt: the ids that came before, for the repetition penalty.
        fork: which of several answers to one prompt this is; each draws its own.
    """

    def __init__(self, sampling: Sampling, prompt: Sequence[int] = (), *, fork: int = 0) -> None:
        self._sampling = sampling
        self._generator = torch.Generator()
        self.logprobs: list[TokenLogprob] = []
        """What was asked for about each chosen token."""

        self._seen: set[int] = set(prompt) if sampling.repetition_penalty != 1 else set()
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(_fork_seed(sampling.seed, fork))

    def choose(self, logits: Tensor) -> int:  # (vocab,)
        """Choose the next token."""
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

        It is an exact draw (Efraimidis and Spirakis 2006, doi:10.1016/j.ipl.2005.11.003). A point
        on the sum of all probabilities would be one too, but there the rounding of any logit moves
        every border: another batch, and the same seed says something else once in 10,000 tokens.
        """
        probabilities, ids = self._candidates(logits)  # (kept,), (kept,) or None
        times = torch.empty(logits.numel(), dtype=torch.float64)
        times.exponential_(generator=self._generator)
        if ids is None:
            return int((probabilities / times).argmax())
        return int(ids[(probabilities / times[ids]).argmax()])

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Keep what top-k, top-p and min-p leave, each of what the one before has left."""
        scores = (logits.double() - logits.max().double()) / self._sampling.temperature
        top_k, top_p, min_p = self._sampling.top_k, self._sampling.top_p, self._sampling.min_p
        if (top_k is None or top_k >= scores.numel()) and top_p == 1 and min_p == 0:
            return scores.softmax(0), None
        if top_k is not None and top_k < scores.numel():
            # Of equal scores at the edge, those with the lowest ids, whatever `topk` prefers.
            edge = scores.topk(top_k).values[-1]
            keep = (scores >= edge).nonzero()[:, 0]
            scores, ids = scores[keep], keep
        else:
            ids = torch.arange(scores.numel())
        scores, order = scores.sort(descending=True, stable=True)
        scores, ids = scores[:top_k], ids[order][:top_k]
        probabilities = scores.softmax(0)
        if top_p < 1:
            # A token stays while those before it have less than top_p, so one always does.
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
    """Derive the seed of one of several answers; the first has the seed itself."""
    # A step of the golden ratio (Knuth, TAOCP 6.4) keeps neighbours of one seed off another's.
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
