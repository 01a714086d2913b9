"""
One forward pass of a transformers model, whatever its architecture.

Decides whether the model's keys and values can be stored in blocks and reused. Where they cannot,
the model runs with its own cache, and gives the same answers.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DummyLayer, DynamicLayer, DynamicSlidingWindowLayer

from agentmem.inference.kv_cache.block_storage import KVLayout
from agentmem.inference.runner import batch_probes as probes
from agentmem.inference.runner import routing_probe
from agentmem.inference.runner.own_size import OwnSize, measure
from agentmem.inference.runner.prefix_attention import knows_attention, shared_prefix_attention
from agentmem.inference.runner.transformers_cache import PagedCache, RunLayer, Window

# The argument names of the cache in models, newest first.
_KEYWORDS = ("cache", "past_key_values", "cache_params", "state")
_LENGTH_DEPENDENT_ROPE = {"dynamic", "longrope"}
_WARM_UP_TOKENS = 48


@dataclass(slots=True)
class OwnCache:
    """State of a model without block reuse between passes: its own cache, and the tokens."""

    state: Any = None
    token_ids: list[int] = field(default_factory=list)


class CausalModel:
    """
    A loaded model.

    Args:
        module: a transformers model with a language modelling head, in evaluation mode.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._config = module.config.get_text_config(decoder=True)
        parameters = inspect.signature(module.forward).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._keyword = next((name for name in _KEYWORDS if name in parameters), None)
        self._takes_positions = "position_ids" in parameters
        self._options: dict[str, Any] = {"return_dict": True}
        if "use_cache" in parameters or takes_any:
            self._options["use_cache"] = True
        if "logits_to_keep" in parameters:
            self._options["logits_to_keep"] = 1
        self.device: torch.device = module.device
        self.dtype: torch.dtype = module.dtype
        self.layout: KVLayout | None = None
        self.own_size = OwnSize()
        """Memory of the model's own cache, by length."""
        self.can_batch = self.attends = self._wants_cache = False
        self.is_bitwise = True
        """Whether all probes gave bit-identical logits."""
        self.refusal = self._reason_against_reuse()
        self._warm_up()

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return int(self.embeddings.weight.shape[0])

    @property
    def embeddings(self) -> Any:
        """The input embedding."""
        return self._module.get_input_embeddings()

    @property
    def context_window(self) -> int | None:
        """Maximum positions of the model; None when its config does not say."""
        for name in ("max_position_embeddings", "max_seq_len", "seq_length"):
            value = getattr(self._config, name, None)
            if isinstance(value, int) and value > 0:
                return value
        return None

    @property
    def eos_ids(self) -> frozenset[int]:
        """The stop ids of the model's generation settings."""
        for config in (self._module.generation_config, self._config):
            ids = getattr(config, "eos_token_id", None)
            if ids is not None:
                return frozenset([ids] if isinstance(ids, int) else ids)
        return frozenset()

    @property
    def forced_last_id(self) -> int | None:
        """The id that its settings force as the last token at the maximum length."""
        forced = getattr(self._module.generation_config, "forced_eos_token_id", None)
        return forced if isinstance(forced, int) else None

    @property
    def knows_attention(self) -> bool:
        """Return whether our attention may be tried."""
        kinds = set(self._layer_kinds())
        return self._takes_positions and kinds == {DynamicLayer} and knows_attention(self._config)

    def new_cache(self) -> PagedCache:
        """Return an empty cache for the rows of one run."""
        assert self.refusal is None, "this model has its own cache"
        window = Window()
        kept = (DynamicLayer, DynamicSlidingWindowLayer)
        layers = [RunLayer(window) if kind in kept else kind() for kind in self._layer_kinds()]
        return PagedCache(layers, window, self.device)

    @torch.inference_mode()
    def forward(
        self,
        rows: Sequence[Sequence[int]],
        cache: PagedCache,
        positions: Sequence[int] | None = None,
    ) -> Tensor:
        """
        Run the model over new tokens of each row, which follow its tokens in *cache*.

        Args:
            rows: token ids, at least one for each row.
            cache: the past of the rows; unchanged if the pass fails.
            positions: position of each row's first new token, if not at the end of the cache.

        Returns the logits after the last token of each row, in float32 on the CPU.  # (rows, vocab)
        """
        counts = [len(row) for row in rows]
        mask = cache.begin(counts)
        options = dict(self._options)
        options[str(self._keyword)] = cache
        if mask is not None:
            options["attention_mask"] = mask.long().to(self.device)
        if self._takes_positions:
            # Some classes would number positions differently, which `generate()` overrides.
            at = cache.window.lengths if positions is None else positions
            options["position_ids"] = self._position_ids(counts, at)
        longest = max(counts)
        ids = torch.tensor(
            [[0] * (longest - len(row)) + list(row) for row in rows],
            dtype=torch.long,
            device=self.device,
        )  # (rows, longest)
        # On other devices the library's kernels are used, except for shared parts.
        if self.attends and (cache.is_sharing or self.device.type == "cpu"):
            with shared_prefix_attention(self._config):
                outputs = self._module(input_ids=ids, run_cache=cache, **options)
        else:
            outputs = self._module(input_ids=ids, **options)
        logits: Tensor = outputs.logits[:, -1].float().cpu()
        cache.commit(counts)
        return logits

    @torch.inference_mode()
    def forward_own(self, token_ids: Sequence[int], cache: OwnCache) -> Tensor:
        """
        Run a model without block reuse over *token_ids*, which follow the tokens in *cache*.

        Returns the logits after the last of them, in float32 on the CPU.  # (vocab,)
        """
        options = dict(self._options)
        had = len(cache.token_ids)
        cache.token_ids.extend(token_ids)
        if self._keyword is None or self._keys_change(had, len(cache.token_ids)):
            token_ids, cache.state = cache.token_ids, None
        elif cache.state is not None:
            options[self._keyword] = cache.state
        elif self._wants_cache:
            options[self._keyword] = DynamicCache(config=self._config)
        if self._takes_positions:
            first = len(cache.token_ids) - len(token_ids)
            options["position_ids"] = self._position_ids([len(token_ids)], [first])
        ids = torch.tensor([token_ids], dtype=torch.long, device=self.device)  # (1, tokens)
        outputs = self._module(input_ids=ids, **options)
        if self._keyword is not None:
            # An encoder fills the given cache, but does not return it.
            given = getattr(outputs, self._keyword, None)
            cache.state = options.get(self._keyword) if given is None else given
        logits: Tensor = outputs.logits[0, -1]
        return logits.float().cpu()

    @torch.inference_mode()
    def forward_whole(self, token_ids: Sequence[int], *, is_every: bool = False) -> Tensor:
        """
        Run the model over a whole text, without a cache.

        Returns the logits after its last token, in float32 on the CPU.  # (vocab,)
        If *is_every*, those after each token.  # (tokens, vocab)
        """
        options = dict(self._options)
        if is_every:
            options.pop("logits_to_keep", None)
        if "use_cache" in options:
            options["use_cache"] = False
        if self._takes_positions:
            options["position_ids"] = self._position_ids([len(token_ids)], [0])
        ids = torch.tensor([list(token_ids)], dtype=torch.long, device=self.device)
        logits: Tensor = self._module(input_ids=ids, **options).logits[0]
        return (logits if is_every else logits[-1]).float().cpu()

    def _keys_change(self, had: int, length: int) -> bool:
        """Return whether the keys of the first *had* tokens differ in a text of *length*."""
        switch = getattr(self._config, "original_max_position_embeddings", None)
        return isinstance(switch, int) and 0 < had <= switch < length

    def _position_ids(self, counts: Sequence[int], positions: Sequence[int]) -> Tensor:
        """Return the positions of each row's tokens, with 0 for padding: (rows, longest)."""
        longest = max(counts)
        firsts = [at - (longest - new) for at, new in zip(positions, counts, strict=True)]
        ids = torch.tensor(firsts)[:, None] + torch.arange(longest)
        return ids.clamp_(min=0).to(self.device)

    def _layer_kinds(self) -> list[type]:
        return [type(layer) for layer in DynamicCache(config=self._config).layers]

    def _reason_against_reuse(self) -> str | None:
        if self._keyword not in ("cache", "past_key_values"):
            return "the model takes no key-value cache"
        ropes = set(_rope_types(getattr(self._config, "rope_parameters", None)))
        ropes |= set(_rope_types(getattr(self._config, "rope_scaling", None)))
        if odd := sorted(ropes & _LENGTH_DEPENDENT_ROPE):
            return f"its keys depend on the length of the text ({odd[0]} RoPE)"
        allowed = {DynamicLayer, DynamicSlidingWindowLayer, DummyLayer}
        if other := sorted(
            {kind.__name__ for kind in self._layer_kinds()} - {kind.__name__ for kind in allowed}
        ):
            return f"its layers keep a state that cannot be cut into blocks ({other[0]})"
        return None

    def _warm_up(self) -> None:
        """Run small passes: for warm-up, the KV shapes, and the batching probes."""
        ids = [i % self.vocab_size for i in range(_WARM_UP_TOKENS)]
        if self.refusal is None:
            self.refusal = self._found_against_reuse(ids)
        if self.refusal is not None:
            own = OwnCache()
            self.forward_own(ids, own)
            self.forward_own(ids[:1], own)
            self.own_size = measure(own.state)

    def _found_against_reuse(self, ids: list[int]) -> str | None:
        """Probe prefix reuse; return why it is impossible, or None."""
        cache = self.new_cache()
        try:
            if not probes.can_cut(self, ids, cache):
                self._wants_cache = True
                return (
                    "a text that is computed in parts gives other answers than the whole: the "
                    "model looks ahead as an encoder does, or its rounding decides"
                )
            self.layout = cache.layout()
            self.can_batch = probes.can_batch(self)
            self.attends = self.can_batch and probes.can_attend(self)
            # Where passes of all sizes are bit-identical, routing cannot differ.
            is_half = self.dtype in (torch.bfloat16, torch.float16)
            if is_half and not self.is_bitwise and routing_probe.rounding_decides(self):
                self._wants_cache = True
                self.layout, self.can_batch, self.attends = None, False, False
                return (
                    "it chooses (experts, for one) by numbers that the rounding of "
                    f"{str(self.dtype).removeprefix('torch.')} decides: a text that is computed "
                    "in parts gives other answers than the whole; load it in float32 for reuse"
                )
        except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
            # The model needs its own cache class.
            return f"it does not run with our cache ({type(error).__name__}: {error})"
        return None


def _rope_types(parameters: object) -> Iterator[str]:
    """Return all RoPE types of a config, which may nest them by layer type."""
    if isinstance(parameters, Mapping):
        for key, value in parameters.items():
            if key in ("rope_type", "type") and isinstance(value, str):
                yield value
            else:
                yield from _rope_types(value)
