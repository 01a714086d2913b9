import pytest
import torch

from agentmem.config import Sampling
from agentmem.errors import ConfigError
from agentmem.inference.sampling.sampler import Sampler

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


def test_top_p_that_the_likeliest_reach_exactly_keeps_no_more():
    assert set(draw(50, torch.zeros(2), top_p=0.5)) == {0}


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


def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest():
    assert set(draw(200, min_p=0.5)) == {0, 2}
    assert set(draw(200, min_p=1.0)) == {0}
    assert shares(draw(min_p=0.5)) == pytest.approx([0.625, 0, 0.375, 0], abs=0.03)


def test_what_was_said_is_less_likely_with_a_penalty():
    logits = torch.tensor([2.0, 1.5, -1.0, -1.1])

    assert draw(4, logits=logits, temperature=0, repetition_penalty=2.0) == [0, 1, 0, 0]
    seen = Sampler(Sampling(repetition_penalty=2.0), prompt=[0])
    assert seen.choose(logits) == 1
    # Negative scores move away from zero.
    low = Sampler(Sampling(repetition_penalty=1.2), prompt=[0, 1, 2])
    assert low.choose(torch.tensor([-9.0, -9.0, -1.0, -1.1])) == 3


def test_equal_scores_at_the_edge_of_top_k_are_taken_by_their_ids():
    assert set(draw(100, logits=torch.zeros(4), top_k=2)) == {0, 1}


def test_log_probabilities_are_those_of_the_model_whatever_is_chosen():
    sampler = Sampler(Sampling(temperature=1.0, seed=1, top_k=1, logprobs=2))

    sampler.choose(LOGITS)

    [found] = sampler.logprobs
    assert found.token_id == 0
    assert found.logprob == pytest.approx(torch.tensor(0.5).log().item(), abs=1e-6)
    assert [token for token, _ in found.top] == [0, 2]
    assert [p for _, p in found.top] == pytest.approx(torch.tensor([0.5, 0.3]).log().tolist())


def test_a_penalty_leaves_the_log_probabilities_as_the_model_has_them():
    sampling = Sampling(temperature=0, repetition_penalty=4.0, logprobs=0)
    logits = torch.tensor([2.0, 1.0, 0.5])
    sampler = Sampler(sampling, [0])

    assert sampler.choose(logits) == 1
    assert sampler.logprobs[0].logprob == pytest.approx(logits.log_softmax(0)[1].item())


def test_answers_to_one_prompt_draw_each_their_own():
    def draws(fork, seed=7):
        sampler = Sampler(Sampling(temperature=1.0, seed=seed), fork=fork)
        return [sampler.choose(LOGITS) for _ in range(30)]

    assert draws(0) == draw(30)
    assert len({tuple(draws(fork)) for fork in range(5)}) == 5
    assert draws(1) == draws(1)
    assert draws(1) != draws(0, seed=8)


@pytest.mark.parametrize(
    "bad",
    [
        {"min_p": 1.5},
        {"repetition_penalty": 0},
        {"logprobs": -1},
        {"logprobs": 51},
        {"stop_ids": (-1,)},
        {"stop_ids": 1},
        {"stop_ids": ["1"]},
    ],
)
def test_settings_that_cannot_work_are_refused(bad):
    with pytest.raises(ConfigError):
        Sampling(**bad)


@pytest.mark.slow
def test_rounding_of_the_logits_changes_no_draw():
    """They differ in their last digits between one batch and another."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2000, generator=generator)
    one, other = (Sampler(Sampling(temperature=0.8, top_p=0.95, seed=7)) for _ in range(2))

    chosen = [one.choose(logits) for _ in range(2000)]
    rounded = [
        other.choose(logits + 1e-6 * torch.randn(2000, generator=generator)) for _ in range(2000)
    ]

    assert sum(a != b for a, b in zip(chosen, rounded, strict=True)) <= 1


def test_likely_tokens_that_change_places_change_no_draw():
    generator = torch.Generator().manual_seed(0)
    one, other = (Sampler(Sampling(temperature=1.0, top_k=50, seed=7)) for _ in range(2))
    logits = torch.cat([torch.zeros(50), torch.full((10,), -9.0)])

    for _ in range(50):
        rounded = logits + 1e-7 * torch.randn(60, generator=generator)
        assert one.choose(logits) == other.choose(rounded)
