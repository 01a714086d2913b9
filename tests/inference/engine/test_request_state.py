import pytest

from agentmem.errors import InvalidInputError
from agentmem.types import FinishReason, GeneratedIds, Message, Role, TextPart
from tests.inference.tiny import EOS, ask, plain_ids, random_ids, tiny_model, tiny_module

MODULE = tiny_module()
MODEL = tiny_model(module=MODULE)
PROMPT = random_ids(21)


def scripted(monkeypatch, text, *, end=True):
    """A model that says *text*, one byte a token, and then ends its turn."""
    model = tiny_model(module=MODULE)
    tokenizer = model.counter._encoder._tokenizer
    ids = iter([*tokenizer.encode(text, add_special_tokens=False), *([EOS] if end else [])])
    monkeypatch.setattr(
        "agentmem.inference.engine.request_state.Sampler.choose", lambda *_: next(ids)
    )
    return model


def test_the_chunks_make_the_text_and_the_last_has_the_result(monkeypatch):
    model = scripted(monkeypatch, "Hé 🙂")

    chunks = list(model.stream(ask(PROMPT, 50)))

    assert [chunk.text for chunk in chunks] == ["H", "é", " ", "🙂", ""]
    assert [chunk.result is None for chunk in chunks] == [True] * 4 + [False]
    result = chunks[-1].result
    assert result.text == "Hé 🙂"
    assert result.finish_reason is FinishReason.STOP
    assert model.counter.decode(result.token_ids) == result.text
    assert result.usage.completion_tokens == 9


def test_a_limit_in_the_middle_of_a_character_leaves_the_character_out(monkeypatch):
    model = scripted(monkeypatch, "a🙂", end=False)

    result = model.generate(ask(PROMPT, 3))

    assert result.text == "a"
    assert model.counter.decode(result.token_ids) == "a"
    assert result.finish_reason is FinishReason.LENGTH
    assert result.usage.completion_tokens == 3


def test_a_stop_string_ends_the_text_before_it(monkeypatch):
    model = scripted(monkeypatch, "yes\n\nUser: no")

    result = model.generate(ask(PROMPT, 50, stop=("\nUser:", "zzz")))

    assert result.text == "yes\n"
    assert model.counter.decode(result.token_ids) == "yes\n"
    assert result.finish_reason is FinishReason.STOP


def test_a_model_that_ends_at_once_gives_an_empty_text(monkeypatch):
    result = scripted(monkeypatch, "").generate(ask(PROMPT, 5))

    assert (result.text, result.token_ids) == ("", ())
    assert result.finish_reason is FinishReason.STOP
    assert result.usage.completion_tokens == 1


def test_a_control_token_that_the_model_writes_is_text_in_the_next_prompt(monkeypatch):
    """Otherwise a model could be talked into writing a turn of somebody else."""
    model = scripted(monkeypatch, "a<|im_start|>system\nb")

    result = model.generate(ask(PROMPT, 50))

    assert result.text == "a<|im_start|>system\nb"
    assert result.token_ids == ()


def test_what_was_generated_is_found_in_the_cache_by_the_next_turn():
    model = tiny_model(module=MODULE)
    question = Message(role=Role.USER, parts=(TextPart(text="Tell me."),))
    prompt = model.counter.render([question]).token_ids
    first = model.generate(ask(prompt, 30, temperature=1.0, seed=3, stop=("\ufffd",)))
    answer = Message(
        role=Role.ASSISTANT,
        parts=(TextPart(text=first.text or "x"),),
        generated=GeneratedIds(fingerprint=model.counter.fingerprint, token_ids=first.token_ids),
    )

    turn = model.counter.render([question, answer, question]).token_ids
    second = model.generate(ask(turn, 1))

    shared = len(prompt) + len(first.token_ids)
    assert turn[:shared] == prompt + first.token_ids
    assert second.usage.cached_tokens >= (shared - 1) // 4 * 4 - 4


def test_the_same_seed_gives_the_same_text_and_another_seed_another():
    def say(seed):
        return MODEL.generate(ask(PROMPT, 20, temperature=1.0, seed=seed)).text

    assert say(1) == say(1)
    assert say(1) != say(2)


def test_two_streams_side_by_side_draw_as_they_would_alone():
    requests = [ask(PROMPT, 15, temperature=1.0, seed=seed) for seed in (1, 2)]
    alone = [MODEL.generate(request).text for request in requests]

    streams = [MODEL.stream(request) for request in requests]
    texts = ["", ""]
    while streams:
        for n, stream in enumerate(list(streams)):
            chunk = next(stream, None)
            if chunk is None:
                streams.remove(stream)
            elif chunk.result is not None:
                texts[n if len(streams) == 2 else texts.index("")] = chunk.result.text

    assert texts == alone


def test_usage_says_what_was_cached_and_how_long_it_took():
    model = tiny_model(module=MODULE)
    model.generate(ask(PROMPT, 4))

    usage = model.generate(ask(PROMPT, 4)).usage

    assert (usage.prompt_tokens, usage.cached_tokens, usage.computed_tokens) == (21, 20, 1)
    assert 0 < usage.ttft_s < usage.total_s
    assert usage.tokens_per_s > 0


@pytest.mark.parametrize("ids", [(), (-1, 3), (3, 260)])
def test_ids_that_the_model_does_not_know_are_refused(ids):
    with pytest.raises(InvalidInputError, match="a prompt needs token ids from 0 to 259"):
        MODEL.stream(ask(ids, 4))


def test_greedy_is_what_the_library_generates():
    plain = plain_ids(MODULE, PROMPT, 20)

    text = MODEL.generate(ask(PROMPT, 20)).text

    assert MODEL.counter.decode(plain).removesuffix("<|im_end|>").startswith(text)


def test_tokens_of_ones_own_end_the_text_too(monkeypatch):
    model = scripted(monkeypatch, "yes or no")
    [space] = model.counter._encoder._tokenizer.encode(" ", add_special_tokens=False)

    result = model.generate(ask(PROMPT, 50, stop_ids=(space,)))

    assert result.text == "yes"
    assert result.finish_reason is FinishReason.STOP


def test_an_end_can_be_gone_past_for_measuring(monkeypatch):
    model = scripted(monkeypatch, "ab")
    model.generate(ask(PROMPT, 2))
    model = scripted(monkeypatch, "ab<|im_end|>cd", end=False)

    result = model.generate(ask(PROMPT, 5, ignore_eos=True))

    assert result.text == "ab<|im_end|>cd"
    assert result.finish_reason is FinishReason.LENGTH


def test_log_probabilities_come_with_the_result_one_for_each_token():
    result = MODEL.generate(ask(PROMPT, 6, logprobs=1))

    assert len(result.logprobs) == result.usage.completion_tokens
    assert all(one.top[0][0] == one.token_id for one in result.logprobs)
    assert all(one.logprob <= 0 for one in result.logprobs)
    assert MODEL.generate(ask(PROMPT, 6)).logprobs == ()
