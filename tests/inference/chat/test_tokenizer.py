import itertools
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.types import GeneratedIds, ToolCall
from tests.inference.chat.test_encoder import letters_tokenizer
from tests.inference.tiny import CHATML, controls, say, tiny_tokenizer, with_template

TOKENIZER = tiny_tokenizer()
COUNTER = ChatTokenizer(TOKENIZER)


SPELLINGS = st.lists(
    st.sampled_from(
        ["<|im_end|>", "<|im_start|>", "<|im", "_end|>", "<|", "|>", "a", " ", "\n", "é"]
    )
    | st.text(max_size=3),
    min_size=1,
    max_size=8,
).map("".join)
STORABLE = SPELLINGS.filter(lambda t: t.strip() and "\0" not in t and t.isascii() | t.isprintable())


def test_plain_text_gets_the_ids_of_the_template():
    messages = [
        say("system", "Be brief."),
        say("user", "Hi  there\n\n1234 é 🙂 "),
        say("assistant", "a"),
    ]

    rendered = COUNTER.render(messages)

    plain = [{"role": str(m.role), "content": m.text} for m in messages]
    expected = TOKENIZER.apply_chat_template(plain, add_generation_prompt=True, tokenize=True)
    assert list(rendered.token_ids) == expected["input_ids"]
    assert rendered.text == TOKENIZER.decode(expected["input_ids"])


@pytest.mark.slow
@given(STORABLE, STORABLE, STORABLE, STORABLE)
def test_no_text_of_a_message_becomes_a_control_token(content, name, key, result):
    call = ToolCall(id=name, name=name, arguments=json.dumps({key: [content, {key: 1}]}))
    messages = [
        say("user", content),
        say("assistant", content, tool_calls=(call,)),
        say("tool", result, tool_call_id=name, name=key),
        say("assistant", result),
    ]

    rendered = COUNTER.render(messages)

    start, end = 256, 257
    assert controls(rendered, COUNTER) == [start, end] * 4 + [start]
    assert COUNTER.decode(rendered.token_ids) == rendered.text
    assert content in rendered.text
    assert result in rendered.text


def test_the_characters_that_mark_spellings_may_stand_in_the_text():
    private = "".join(map(chr, range(0xE000, 0xE010)))
    arguments = json.dumps({"k": private}, ensure_ascii=False)
    call = ToolCall(id="c", name="f", arguments=arguments)
    messages = [
        say("user", f"{private} <|im_end|> \ue0000\ue000"),
        say("assistant", tool_calls=(call,)),
        say("tool", "ok", tool_call_id="c"),
    ]

    rendered = COUNTER.render(messages)

    assert private in rendered.text
    assert rendered.text.count(private) == 2
    assert COUNTER.decode(rendered.token_ids) == rendered.text


def generated(text, ids, fingerprint=None):
    ids = GeneratedIds(fingerprint=fingerprint or COUNTER.fingerprint, token_ids=tuple(ids))
    return say("assistant", text, generated=ids)


def merging_counter():
    """`ab` has a token of its own, so it can be spelled in two ways."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["ab"])
    counter = ChatTokenizer(tokenizer)
    a, b, ab = (tokenizer.convert_tokens_to_ids(token) for token in ("a", "b", "ab"))
    return counter, (a, b), (ab,)


def test_generated_ids_are_kept_as_they_were_generated():
    counter, split, merged = merging_counter()
    question = say("user", "q")

    written = counter.render([question, say("assistant", "ab")]).token_ids
    kept = counter.render([question, generated("ab", split, counter.fingerprint), question])

    assert merged[0] in written
    assert merged[0] not in kept.token_ids
    assert kept.text == counter.render([question, say("assistant", "ab"), question]).text
    # What was in the cache after the answer is the beginning of the next prompt.
    prompt = counter.render([question]).token_ids
    assert kept.token_ids[: len(prompt) + 2] == prompt + split


def test_generated_ids_of_another_model_are_not_kept():
    counter, split, merged = merging_counter()

    assert merged[0] in counter.render([generated("ab", split, "another")]).token_ids


def test_generated_ids_that_do_not_spell_the_text_are_not_kept():
    counter, split, merged = merging_counter()
    prompt = counter.render([generated("abb", split, counter.fingerprint)])

    assert merged[0] in prompt.token_ids
    assert counter.decode(prompt.token_ids) == prompt.text


def test_generated_ids_that_begin_with_a_space_that_is_not_in_the_text_are_not_kept():
    """Spelled alone, such ids lose their space; behind a prompt they would have it again."""
    tokenizer = letters_tokenizer(first_gets_space=True)
    counter = ChatTokenizer(tokenizer)
    space, letter = tokenizer.convert_tokens_to_ids(["\u2581", "a"])
    answer = generated("a", [space, letter], counter.fingerprint)

    rendered = counter.render([say("user", "q"), answer])

    assert rendered.token_ids == counter.render([say("user", "q"), say("assistant", "a")]).token_ids
    assert counter.num_rewritten == 1


def test_generated_control_tokens_are_not_kept():
    message = generated("x<|im_start|>", [*TOKENIZER.encode("x"), 256])

    assert controls(COUNTER.render([message]), COUNTER) == [256, 257, 256]


def test_a_template_that_rewrites_an_answer_wins_over_generated_ids():
    counter = with_template(CHATML.replace("m['content']", "m['content'] | trim"))
    ids = TOKENIZER.encode(" a ")

    rendered = counter.render([generated(" a ", ids, counter.fingerprint)])

    assert "assistant\na<|im_end|>" in rendered.text
    assert counter.decode(rendered.token_ids) == rendered.text


def test_counts_add_up_to_the_whole_prompt():
    call = ToolCall(id="c", name="look", arguments='{"b": 1, "a": [2]}')
    messages = [
        say("system", "Be brief."),
        say("user", "Hi <|im_end|>"),
        say("assistant", "I look", tool_calls=(call,)),
        say("tool", "42 é", tool_call_id="c"),
        say("assistant", "It is 42."),
    ]

    whole = COUNTER.render(messages, add_generation_prompt=False)

    assert sum(map(COUNTER.count, messages)) == len(whole.token_ids)


def test_the_fingerprint_names_tokenizer_and_template():
    assert ChatTokenizer(tiny_tokenizer()).fingerprint == COUNTER.fingerprint
    assert with_template(CHATML + " ").fingerprint != COUNTER.fingerprint
    assert merging_counter()[0].fingerprint != COUNTER.fingerprint


def test_the_token_that_ends_a_turn_is_found_in_the_template():
    assert COUNTER.turn_end_ids() == {257}
    assert with_template(None).turn_end_ids() == frozenset()


@pytest.mark.model
def test_the_real_template_and_tokenizer_are_followed_to_the_letter(real_model):
    counter = real_model.counter
    tokenizer = counter._encoder._tokenizer
    texts = ["Hi  there\n\n", "x = 12345; y\t", " é🙂 你好", "\n", "a<|b", "don't  "]
    messages = [say("user" if i % 2 == 0 else "assistant", t + ".") for i, t in enumerate(texts)]

    for count in range(1, len(messages) + 1):
        plain = [{"role": str(m.role), "content": m.text} for m in messages[:count]]
        expected = tokenizer.apply_chat_template(plain, add_generation_prompt=True, tokenize=True)
        assert list(counter.render(messages[:count]).token_ids) == expected["input_ids"]

    marginal = [len(counter.render(messages[:n]).token_ids) for n in range(1, len(messages) + 1)]
    assert [b - a for a, b in itertools.pairwise(marginal)] == [
        counter.count(m) for m in messages[1:]
    ]


@pytest.mark.model
def test_a_message_of_a_megabyte_is_counted_once_and_then_remembered(real_model):
    message = say("user", "lorem ipsum dolor 12 <|im_end|> " * 32_000)
    counter = real_model.counter

    counted = counter.count(message)
    started = time.thread_time()
    again = counter.count(message)
    rendered = counter.render([message])

    assert time.thread_time() - started < 1
    assert counted == again > 100_000
    assert controls(rendered, counter).count(2) == 2
