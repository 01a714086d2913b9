import pytest
import torch

from agentmem.config import Sampling
from agentmem.inference.sampler import Sampler

LOGITS = torch.tensor([0.5, 0.1, 0.3, 0.1]).log()


def draw(count=2000, logits=LOGITS, **sampling):
    sampler = Sampler(Sampling(**({"temperature": 1.0, "seed": 7} | sampling)))
    return [sampler.choose(logits) for _ in range(count)]


def shares(chosen):
    return [chosen.count(i) / len(chosen) for i in range(4)]


def test_temperature_0_is_greedy():
    assert set(draw(10, temperature=0.0)) == {0}


def test_draws_follow_the_probabilities():
    assert shares(draw()) == pytest.approx([0.5, 0.1, 0.3, 0.1], abs=0.03)


def test_a_higher_temperature_levels_them():
    p = torch.softmax(LOGITS / 2, 0).tolist()
    assert shares(draw(temperature=2.0)) == pytest.approx(p, abs=0.03)


def test_top_k_keeps_the_likeliest():
    assert shares(draw(top_k=2)) == pytest.approx([0.625, 0, 0.375, 0], abs=0.03)
    assert set(draw(20, top_k=1)) == {0}
    assert shares(draw(top_k=100)) == pytest.approx([0.5, 0.1, 0.3, 0.1], abs=0.03)


def test_top_p_keeps_the_smallest_set_with_that_much():
    assert shares(draw(top_p=0.8)) == pytest.approx([0.625, 0, 0.375, 0], abs=0.03)
    assert shares(draw(top_p=0.7)) == pytest.approx([0.625, 0, 0.375, 0], abs=0.03)
    assert set(draw(50, top_p=0.4)) == {0}


def test_top_p_is_taken_of_what_top_k_left():
    """Of the two that are left, the first has 0.625."""
    assert set(draw(50, top_k=2, top_p=0.6)) == {0}


def test_the_same_seed_draws_the_same_whatever_runs_beside():
    first = draw(20)
    torch.manual_seed(0)
    draw(5, seed=9)
    assert draw(20) == first
    assert draw(20, seed=8) != first


def test_without_a_seed_each_request_draws_its_own():
    assert draw(40, seed=None) != draw(40, seed=None)


def test_an_extreme_temperature_is_no_trouble():
    assert set(draw(20, temperature=1e-9)) == {0}
    assert len(set(draw(200, temperature=1e9))) == 4


def test_a_token_without_probability_is_never_drawn():
    logits = torch.tensor([float("-inf"), 0.0, 0.0, float("-inf")])
    assert set(draw(200, logits=logits)) == {1, 2}
