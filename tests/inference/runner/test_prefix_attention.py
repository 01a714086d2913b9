"""The engine's own attention against the textbook's, in float64."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentmem.inference.runner import prefix_attention as shared_prefix_attention
from agentmem.inference.runner import tiled_attention as blocked_attention
from agentmem.inference.runner.transformers_cache import Window
from tests.inference.tiny import greedy_ids, random_ids, tiny_model

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 0.02}


def textbook(query, key, value, visible, scale):  # (heads, new, dim), (kv_heads, slots, dim)
    group = query.shape[0] // key.shape[0]
    key, value = (x.double().repeat_interleave(group, 0) for x in (key, value))
    scores = query.double() @ key.transpose(1, 2) * scale
    return scores.masked_fill(~visible, float("-inf")).softmax(-1) @ value


def attended(query, key, value, *, lengths, shared=()):
    """What a layer of a model would be given."""
    rows, _, new, _ = query.shape
    width = key.shape[2]
    mask = torch.ones(rows, 1, new, width, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row] = torch.ones(new, width, dtype=torch.bool).tril(width - new)
        mask[row, :, :, : width - length] = False
    is_even = len(set(lengths)) == 1 and lengths[0] == width
    cache = SimpleNamespace(
        window=Window(is_even=is_even), layers=[SimpleNamespace(shared=list(shared))]
    )
    given_mask = None if is_even and new == 1 else mask
    module = SimpleNamespace(layer_idx=0)
    out, _ = shared_prefix_attention._attend(
        module, query, key, value, given_mask, 0.3, run_cache=cache
    )
    return out.transpose(1, 2), mask


def numbers(*shape, dtype):
    return torch.randn(shape).to(dtype)


@pytest.fixture(params=[True, False], ids=["blocks", "kernel"])
def in_blocks(request, monkeypatch):
    """Whether this processor is said to be fast in bfloat16."""
    monkeypatch.setattr(shared_prefix_attention, "cpu_has_fast_bf16", lambda: request.param)
    # Several blocks, though there are few queries.
    monkeypatch.setattr(blocked_attention, "_MAX_SCORES", 1 << 10)


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("new", [1, 2, 7, 90])
@pytest.mark.parametrize("past", [0, 1, 130])
@pytest.mark.parametrize("sharing", [None, "all", "some"])
def test_even_rows(dtype, heads, new, past, sharing):
    torch.manual_seed(0)
    rows, dim, (heads, kv_heads) = 3, 16, heads
    query = numbers(rows, heads, new, dim, dtype=dtype)
    key, value = (numbers(rows, kv_heads, past + new, dim, dtype=dtype) for _ in range(2))
    prefix = [numbers(1, kv_heads, 70, dim, dtype=dtype) for _ in range(2)]
    members = {None: [], "all": [0, 1, 2], "some": [0, 2]}[sharing]
    index = None if sharing == "all" else torch.tensor(members)
    shared = [(index, *prefix)] if members else []

    found, mask = attended(query, key, value, lengths=[past + new] * rows, shared=shared)

    for row in range(rows):
        keys, values, visible = key[row], value[row], mask[row, 0]
        if row in members:
            keys, values = (torch.cat([p[0], x], 1) for p, x in zip(prefix, (keys, values)))  # noqa: B905
            visible = torch.cat([torch.ones(new, 70, dtype=torch.bool), visible], 1)
        wanted = textbook(query[row], keys, values, visible, 0.3)
        assert (found[row] - wanted).norm() <= TOLERANCE[dtype] * wanted.norm()


@given(
    lengths=st.lists(st.integers(min_value=5, max_value=100), min_size=2, max_size=5),
    new=st.integers(min_value=1, max_value=5),
    dtype=st.sampled_from(list(TOLERANCE)),
)
def test_ragged_rows(lengths, new, dtype):
    torch.manual_seed(0)
    query = numbers(len(lengths), 4, new, 8, dtype=dtype)
    key, value = (numbers(len(lengths), 2, max(lengths), 8, dtype=dtype) for _ in range(2))

    found, mask = attended(query, key, value, lengths=lengths)

    for row in range(len(lengths)):
        wanted = textbook(query[row], key[row], value[row], mask[row, 0], 0.3)
        assert (found[row] - wanted).norm() <= TOLERANCE[dtype] * wanted.norm()


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_scores_of_any_size_give_numbers(size):
    query = numbers(1, 2, 80, 16, dtype=torch.bfloat16) * size
    key, value = (numbers(1, 2, 80, 16, dtype=torch.bfloat16) for _ in range(2))
    prefix = [numbers(1, 2, 70, 16, dtype=torch.bfloat16) for _ in range(2)]

    found, _ = attended(query, key, value, lengths=[80], shared=[(None, *prefix)])

    assert found.isfinite().all()


@pytest.mark.usefixtures("in_blocks")
def test_values_of_another_width_than_keys():
    """As in multi-head latent attention."""
    query, key = (numbers(1, 2, 70, 16, dtype=torch.bfloat16) for _ in range(2))
    value = numbers(1, 2, 70, 8, dtype=torch.bfloat16)

    found, mask = attended(query, key, value, lengths=[70])

    wanted = textbook(query[0], key[0], value[0], mask[0, 0], 0.3)
    assert found.shape == (1, 2, 70, 8)
    assert (found[0] - wanted).norm() <= 0.02 * wanted.norm()


def test_it_is_used_for_one_row_as_well(monkeypatch):
    seen = []
    merge = shared_prefix_attention._whole

    def spy(query, *args):
        seen.append(tuple(query.shape))
        return merge(query, *args)

    monkeypatch.setattr(shared_prefix_attention, "_whole", spy)
    greedy_ids(tiny_model(), random_ids(9), 4)

    # Two heads with keys of their own, and two that ask each.
    assert (1, 2, 2, 8) in seen
