"""Layers exchanged for faster ones: the same answers, and only where they are the same."""

import gc
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from agentmem.config import InferenceConfig
from agentmem.errors import ConfigError
from agentmem.inference import LocalModel
from agentmem.inference.weights.optimize import FusedRMSNorm, optimize_for_cpu
from agentmem.inference.weights.packed_linear import (
    MAX_QUANTIZED_ROWS,
    PackedLinear,
    QuantizedLinear,
)
from tests.end_to_end.test_architectures import KINDS
from tests.inference.tiny import (
    greedy_batch,
    greedy_ids,
    plain_ids,
    random_ids,
    tiny_model,
    tiny_module,
    tiny_tokenizer,
)

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.bfloat16)


def linear(rows=96, columns=64, *, bias=True, dtype=torch.float32):
    torch.manual_seed(1)
    return nn.Linear(columns, rows, bias=bias).to(dtype).requires_grad_(requires_grad=False)


def numbers(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)


def exchanged(plain, weights):
    """What a processor makes of a layer; not each has kernels for bfloat16."""
    module = nn.Sequential(plain)
    optimize_for_cpu(module, weights=weights, device=CPU)
    if plain.weight.dtype == torch.float32:
        assert type(module[0]) is (PackedLinear if weights == "auto" else QuantizedLinear)
    return module[0]


def distance(found, wanted):
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 40)])
def test_packed_weights_give_what_plain_ones_give(dtype, bias, shape):
    plain = linear(bias=bias, dtype=dtype)
    x = numbers(*shape, 64, dtype=dtype)

    with torch.inference_mode():
        packed = exchanged(plain, "auto")
        found = packed(x)

    assert found.shape == (*shape, 96)
    assert found.dtype == dtype
    assert distance(found, plain(x)) < (1e-6 if dtype == torch.float32 else 5e-3)
    assert torch.equal(packed.weight, plain.weight)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("bits", "error"), [(8, 0.015), (4, 0.12)])
def test_quantized_weights_are_as_near_as_their_bits_allow(dtype, bias, bits, error):
    plain = linear(bias=bias, dtype=dtype)
    few, many = numbers(1, MAX_QUANTIZED_ROWS, 64, dtype=dtype), numbers(2, 9, 64, dtype=dtype)

    with torch.inference_mode():
        made = exchanged(plain, f"int{bits}")

        assert distance(made(few), plain(few)) < error
        assert (distance(made(few), plain(few)) > 0) == isinstance(made, QuantizedLinear)
        assert distance(made(many), plain(many)) < 5e-3, "more rows take the whole weights"
        assert made(few).dtype == dtype
        assert torch.equal(made.weight, plain.weight)


def test_weights_that_stand_on_sixteen_steps_are_exact_in_four_bits():
    """So are those of a Q4_1 file, but for the rounding of a step to bfloat16."""
    plain = linear(bias=False)
    steps = torch.randint(0, 16, (96, 2, 32), generator=torch.Generator().manual_seed(3))
    steps[..., 0], steps[..., 1] = 0, 15
    plain.weight.copy_((steps * 0.125 - 0.75).view(96, 64))
    x = numbers(3, 64).bfloat16().float()

    with torch.inference_mode():
        assert distance(QuantizedLinear(plain, bits=4)(x), plain(x)) < 5e-3


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30])
@pytest.mark.parametrize("bits", [8, 4])
def test_weights_of_any_size_are_quantized_to_numbers(bits, scale):
    plain = linear(bias=False)
    plain.weight.mul_(scale)

    with torch.inference_mode():
        assert QuantizedLinear(plain, bits=bits)(numbers(2, 64)).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_architecture_says_the_same_when_prepared(kind):
    module = tiny_module(kind)
    prompts = [random_ids(43), random_ids(9, seed=1), (*random_ids(43)[:20], 1, 2, 3)]
    wanted = [plain_ids(module, prompt, 16) for prompt in prompts]

    optimize_for_cpu(module, weights="auto", device=CPU)
    model = tiny_model(module=module)

    assert any(isinstance(one, PackedLinear) for one in module.modules())
    for _ in range(2):  # cold, and with hits
        assert [ids for ids, _ in greedy_batch(model, prompts, 16)] == wanted
    model.check()


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral", "gemma3_text"])
def test_norms_are_exchanged_where_they_give_the_same(kind):
    module = tiny_module(kind)
    optimize_for_cpu(module, weights="auto", device=CPU)
    kinds = {type(one) for one in module.modules()}

    # Gemma's norm adds one to its weight.
    assert (FusedRMSNorm in kinds) == (kind != "gemma3_text")


class OtherRMSNorm(nn.Module):
    """A norm of that name, spoilt in one way."""

    def __init__(self, spoil):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * numbers(32), requires_grad=False)
        self.eps = 1e-5
        self.spoil = spoil

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True) if self.spoil == "mean" else x
        weight = 1 + self.weight if self.spoil == "offset" else self.weight
        eps = 1e-6 if self.spoil == "eps" else self.eps
        out = weight * centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
        return out.double() if self.spoil == "dtype" else out


@pytest.mark.parametrize("spoil", [None, "mean", "offset", "eps", "dtype"])
def test_a_norm_that_is_another_one_stays(spoil):
    module = nn.Sequential(OtherRMSNorm(spoil))

    optimize_for_cpu(module, weights="auto", device=CPU)

    assert isinstance(module[0], FusedRMSNorm) == (spoil is None)


def test_a_layer_used_twice_is_exchanged_once():
    shared = linear(64, 64)
    module = nn.ModuleList([nn.Sequential(shared), nn.Sequential(shared)])

    optimize_for_cpu(module, weights="auto", device=CPU)

    assert isinstance(module[0][0], PackedLinear)
    assert module[0][0] is module[1][0]


def test_a_layer_that_the_kernels_do_not_take_stays_whole():
    module = nn.Sequential(linear(96, 40), linear(96, 64), linear(96, 64).half())

    optimize_for_cpu(module, weights="int4", device=CPU)

    assert type(module[0]) is PackedLinear, "40 is no multiple of 32"
    assert type(module[1]) is QuantizedLinear
    assert type(module[2]) in (nn.Linear, PackedLinear, QuantizedLinear)


def refuse(_weight):
    raise RuntimeError("bf16 path needs the cpu support avx512bw, avx512vl and avx512dq")


@pytest.mark.parametrize(
    "mkldnn", [SimpleNamespace(), SimpleNamespace(_reorder_linear_weight=refuse)]
)
@pytest.mark.parametrize("weights", ["auto", "int8", "int4"])
def test_where_there_are_no_kernels_layers_stay_plain(monkeypatch, weights, mkldnn):
    """Torch may be built without them, or the processor may lack what they need."""
    monkeypatch.setattr("torch.ops.mkldnn", mkldnn)
    module = tiny_module()
    optimize_for_cpu(module, weights=weights, device=CPU)

    assert not any(isinstance(one, PackedLinear | QuantizedLinear) for one in module.modules())
    assert greedy_ids(tiny_model(module=module), random_ids(9), 4)[0]


def test_plain_weights_are_left_alone():
    module = tiny_module()
    before = [type(one) for one in module.modules()]

    optimize_for_cpu(module, weights="plain", device=CPU)

    assert [type(one) for one in module.modules()] == before


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_quantized_weights_are_refused_off_the_cpu(weights):
    with pytest.raises(ConfigError, match=f"weights '{weights}' are for models on the CPU"):
        optimize_for_cpu(tiny_module(), weights=weights, device=torch.device("meta"))


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["auto", "plain", "int8", "int4"])
def test_a_model_is_loaded_with_the_weights_asked_for(tmp_path, weights):
    tiny_module().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    config = InferenceConfig(weights=weights, device="cpu", dtype="float32")

    with LocalModel.load(tmp_path, config=config) as model:
        module = model._engine._model._module
        kinds, head = {type(one) for one in module.modules()}, module.get_output_embeddings()
        [(ids, result)] = greedy_batch(model, [random_ids(20)], 4)

    assert len(ids) <= 5
    assert result.usage.prompt_tokens == 20
    assert (QuantizedLinear in kinds) == (weights in ("int8", "int4"))
    # The head's errors are evened out by nothing.
    assert getattr(head, "bits", None) == (8 if weights in ("int8", "int4") else None)
    assert (nn.Linear in kinds) == (weights == "plain")


@pytest.mark.slow
def test_the_plain_weights_are_not_kept():
    module = tiny_module()
    weight = module.model.layers[0].mlp.up_proj.weight
    optimize_for_cpu(module, weights="auto", device=CPU)
    gc.collect()

    assert not any(parameter is weight for parameter in module.parameters())
    assert len(gc.get_referrers(weight)) <= 1


@pytest.mark.parametrize("columns", [33, 40, 50, 60, 72])
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_inputs_that_end_within_a_group_stay_whole(weights, columns):
    """The kernels would read what is not theirs, and end the process."""
    module = nn.Sequential(linear(96, columns))

    optimize_for_cpu(module, weights=weights, device=CPU)

    assert type(module[0]) is PackedLinear
