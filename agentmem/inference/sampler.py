"""From logits to a token id. Each request has its own sampler, with its own generator."""

import torch
from torch import Tensor

from agentmem.config import Sampling


class Sampler:
    """
    Chooses tokens for one request.

    Each choice takes exactly one number from the request's own generator, on the CPU, so a
    seed gives the same text whatever else runs and on whatever device the model is.
    """

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._generator = torch.Generator()
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def choose(self, logits: Tensor) -> int:  # (vocab,)
        """Choose the next token."""
        if self._sampling.temperature == 0:
            return int(logits.argmax())
        probabilities, ids = self._candidates(logits)  # (kept,), (kept,) or None
        point = torch.rand(1, generator=self._generator, dtype=torch.float64)
        mass = probabilities.cumsum(0)
        index = int(torch.searchsorted(mass, point * mass[-1], right=True))
        # A point that rounding put on the very end belongs to the last token that can be drawn.
        index = min(index, int(probabilities.nonzero()[-1]))
        return index if ids is None else int(ids[index])

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Keep what top-k and top-p leave: first the *top_k* likeliest, then the nucleus."""
        scores = (logits.double() - logits.max().double()) / self._sampling.temperature
        top_k, top_p = self._sampling.top_k, self._sampling.top_p
        if (top_k is None or top_k >= scores.numel()) and top_p == 1:
            return scores.softmax(0), None
        scores, ids = scores.sort(descending=True, stable=True)
        scores = scores[:top_k]
        probabilities = scores.softmax(0)
        if top_p < 1:
            # A token stays while those before it have less than top_p, so one always does.
            before = probabilities.cumsum(0) - probabilities
            probabilities = probabilities[: int((before < top_p).sum())]
        return probabilities, ids
