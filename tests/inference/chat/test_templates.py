"""What `ChatTokenizer` promises, for a template of each kind."""

import copy
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.types import GeneratedIds, ToolCall
from tests.inference.kinds import KINDS, TOKENS, WORDS, kind_counter, kind_tokenizer, with_kind
from tests.inference.tiny import controls, say

each_kind = pytest.mark.parametrize("kind", KINDS)


def call(*ids, text="", name="look", arguments='{"q": "v"}'):
    made = tuple(ToolCall(id=i, name=name, arguments=arguments) for i in ids)
    return say("assistant", text, tool_calls=made)


def result(call_id, text="found"):
    return say("tool", text, tool_call_id=call_id)


def end_of(rendered, text, begin):
    """Where *text* ends, as the template may show it: trimmed, or as a JSON string."""
    shapes = (text, json.dumps(text, ensure_ascii=False)[1:-1])
    shapes = [cut for s in shapes for cut in (s, s.rstrip(), s.lstrip(), s.strip())]
    ends = [rendered.find(s, begin) + len(s) for s in shapes if s in rendered[begin:]]
    assert ends, f"{text!r} is not in {rendered[begin:]!r}"
    return min(ends)


def rounds(messages):
    """Runs of results, and of what is between them, in both orders: of arrival, of the calls."""
    places = {}
    for is_result, run in itertools.groupby(messages, key=lambda m: m.role == "tool"):
        arrived = list(run)
        for message in arrived:
            if message.tool_calls:
                places = {made.id: place for place, made in enumerate(message.tool_calls)}
        by_call = sorted(arrived, key=lambda m: places.get(m.tool_call_id, len(places)))
        yield arrived, by_call if is_result else arrived


def in_order_of_calls(messages):
    """The same with results that follow each other in the order of the calls before them."""
    return [message for _, by_call in rounds(messages) for message in by_call]


def shows_ids(counter):
    return counter._template.traits.calls is not None and counter._template.traits.calls.shows_ids


def shown_to(counter, text, messages, begin):
    """Where the last of *messages* ends in *text*, after *begin*."""
    for message in messages:
        begin = end_of(text, counter._template.content(message), begin)
        for made in message.tool_calls:
            (argument,) = made.parsed_arguments().items()
            for part in (made.name, *argument):
                begin = end_of(text, part, begin)
    return begin


def assert_all_is_shown(counter, messages):
    rendered = counter.render(messages)
    # Calls beside words are written as text where a template drops the words, and then the ids
    # are not shown: a round is in the order of its calls there, and may be in that of arrival else.
    by_call = [rounds_of[1] for rounds_of in rounds(messages)]
    either = list(rounds(messages)) if shows_ids(counter) else [(run, run) for run in by_call]
    choices = [[a] if a == b else [a, b] for a, b in either]
    failures = []
    for chosen in itertools.product(*choices):
        try:
            shown_to(counter, rendered.text, itertools.chain(*chosen), 0)
            break
        except AssertionError as error:
            failures.append(error)
    else:
        raise failures[-1]
    assert counter.decode(rendered.token_ids) == rendered.text
    return rendered


S, U, A = say("system", "S1"), say("user", "U1"), say("assistant", "A1")
U2, A2 = say("user", "U2"), say("assistant", "A2")
TRANSCRIPTS = {
    "only a system message": [S],
    "recalled text before a question": [S, U, U2],
    "a question again after no answer": [U, A, U2, U],
    "a promoted result after an answer": [S, U, A, A2, U2],
    "an assistant first": [A, U, A2],
    "an assistant behind the system message": [S, A, U],
    "nothing but an answer": [A],
    "a result first": [result("c1"), A, U],
    "a result of no call behind the system message": [S, result("c1"), U],
    "a call first": [call("c1"), result("c1"), A],
    "a call without a text": [U, call("c1"), result("c1"), A, U2],
    "a call beside a text": [S, U, call("c1", text="hm"), result("c1"), A, U2],
    "a result as the last message": [S, U, call("c1"), result("c1")],
    "an open call as the last message": [S, U, call("c1", "c2")],
    "a result that nobody answers": [U, call("c1"), result("c1"), U2, A],
    "a call after an answer": [U, A, call("c1"), result("c1"), A2],
    "parallel calls answered in another order": [
        *(U, call("c1", "c2", "c3", text="hm")),
        *(result("c3", "R3"), result("c1", "R1"), result("c2", "R2"), A, U2),
    ],
    "a result promoted while a call is open": [U, call("c1"), A, result("c1"), A2, U2],
    "an empty result": [U, call("c1"), result("c1", ""), A],
    "a long tool loop": [S, U, *[call("c1"), result("c1")] * 4, A, U2],
}


@each_kind
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_every_legal_transcript_is_written(kind, name):
    rendered = assert_all_is_shown(kind_counter(kind), TRANSCRIPTS[name])

    bos = kind_tokenizer(kind).bos_token_id
    assert rendered.token_ids.count(bos) == (kind in ("llama3", "gemma", "mistral"))


@each_kind
def test_each_prompt_begins_with_the_prompt_before(kind):
    counter = kind_counter(kind)
    messages = [S, U, call("c1"), result("c1"), A, U2, call("c2", "c3"), result("c3"), result("c2")]

    prompts = [counter.render(messages[:n]).text for n in (2, 4, 6, 9)]

    assert all(after.startswith(before) for before, after in itertools.pairwise(prompts))


SPELLED = {kind: [*TOKENS[kind], *WORDS.get(kind, ())] for kind in KINDS}


@st.composite
def transcripts(draw, kind):
    """Any legal transcript, of texts that spell control tokens wherever a text may be."""
    pieces = [*SPELLED[kind], "<|", "[INST", "]", "ab", ".", " ", "\n", "}", '"', "\\", "é", "🙂"]
    text = st.lists(st.sampled_from(pieces), min_size=1, max_size=5).map("".join)
    text = text.filter(str.strip)
    messages = [say("system", draw(text))] if draw(st.booleans()) else []
    if draw(st.booleans()):
        messages.append(result("gone", draw(text)))
    for number, step in enumerate(draw(st.lists(st.sampled_from("uuaac"), max_size=6))):
        if step != "c":
            messages.append(say("user" if step == "u" else "assistant", draw(text)))
            continue
        ids = [f"{draw(text)}{number}{i}" for i in range(draw(st.integers(1, 3)))]
        arguments = json.dumps({draw(text): draw(text)}, ensure_ascii=False)
        shown = draw(st.just("") | text)
        messages.append(call(*ids, text=shown, name=draw(text), arguments=arguments))
        messages += [say("assistant", draw(text))] if draw(st.booleans()) else []
        messages += [result(i, draw(st.just("") | text)) for i in draw(st.permutations(ids))]
    return messages or [say("user", draw(text))]


def without_spellings(messages):
    """The same transcript of texts that spell nothing."""
    ids = {}
    plain = []
    for message in messages:
        fields = {}
        if message.tool_calls:
            fields["tool_calls"] = tuple(
                ToolCall(id=ids.setdefault(made.id, f"i{len(ids)}"), name="n", arguments='{"k":1}')
                for made in message.tool_calls
            )
        if message.tool_call_id:
            fields["tool_call_id"] = ids.setdefault(message.tool_call_id, f"i{len(ids)}")
        plain.append(say(str(message.role), "x" if message.text else "", **fields))
    return plain


@each_kind
@given(data=st.data())
def test_every_text_is_shown_and_none_becomes_a_control_token(kind, data):
    counter = kind_counter(kind)
    messages = data.draw(transcripts(kind))

    rendered = assert_all_is_shown(counter, messages)

    plain = counter.render(without_spellings(messages))
    assert controls(rendered, counter) == controls(plain, counter)


@pytest.mark.slow
@each_kind
@given(data=st.data())
def test_no_legal_message_is_refused_or_less_than_nothing(kind, data):
    counter = kind_counter(kind)

    for message in data.draw(transcripts(kind)):
        # Of an answer a template may show nothing: a thought that is stripped leaves no token.
        assert counter.count(message) >= (1 if message.role == "user" else 0)


@each_kind
def test_counts_are_near_what_a_message_adds(kind):
    counter = kind_counter(kind)
    messages = [S, U, call("c1"), result("c1"), A, U2, A2, U]

    sizes = [len(counter.render(messages[:n]).token_ids) for n in range(1, len(messages) + 1)]

    added = [after - before for before, after in itertools.pairwise(sizes)]
    assert counter.count(S) >= len(S.text)
    for message, size in zip(messages[1:], added, strict=True):
        assert abs(counter.count(message) - size) <= 8


ORDINARY = {
    "chatml": [S, say("user", "Hi.\n\n ab"), say("assistant", " é  ab\n"), U],
    "llama3": [S, say("user", "Hi.\n\n ab\n"), A, U, call("c1"), result("c1"), A2],
    "qwen3": [S, U, A, U2, call("c1", "c2", text="hm"), result("c1"), result("c2"), A2],
    "gemma": [say("user", " Hi.\n\n ab\n\n"), say("assistant", " é  ab\n"), U],
    "mistral": [U, call("c12345678"), result("c12345678", '"é"\n'), A, say("user", ".\n\n ")],
}


def plain_entries(messages):
    for message in messages:
        entry = {"role": str(message.role), "content": message.text}
        if message.tool_calls:
            entry["tool_calls"] = [
                {
                    "id": made.id,
                    "type": "function",
                    "function": {"name": made.name, "arguments": made.parsed_arguments()},
                }
                for made in message.tool_calls
            ]
        if message.tool_call_id:
            entry["tool_call_id"] = message.tool_call_id
        yield entry


def assert_ids_are_the_library_s(tokenizer, counter, messages):
    for count in range(1 + (messages[0] is S), len(messages) + 1):
        entries = list(plain_entries(messages[:count]))
        for prompt in (False, True):
            expected = tokenizer.apply_chat_template(entries, add_generation_prompt=prompt)
            rendered = counter.render(messages[:count], add_generation_prompt=prompt)
            assert list(rendered.token_ids) == expected["input_ids"]


@each_kind
def test_plain_text_gets_the_ids_that_the_library_gives(kind):
    assert_ids_are_the_library_s(kind_tokenizer(kind), kind_counter(kind), ORDINARY[kind])


@pytest.mark.slow
@pytest.mark.model
@each_kind
def test_the_real_tokenizer_gives_the_ids_of_the_library_too(kind, real_model):
    tokenizer = with_kind(copy.deepcopy(real_model.counter._encoder._tokenizer), kind)

    assert_ids_are_the_library_s(tokenizer, ChatTokenizer(tokenizer), ORDINARY[kind])


def generated(counter, text, ids=None):
    """*text*, generated letter by letter: other ids than the tokenizer gives."""
    ids = ids or [i for letter in text for i in counter._encoder.encode([letter])]
    made = GeneratedIds(fingerprint=counter.fingerprint, token_ids=tuple(ids))
    return say("assistant", text, generated=made)


@each_kind
def test_generated_ids_are_used_as_generated(kind):
    counter = ChatTokenizer(kind_tokenizer(kind))
    answer = generated(counter, "ab ab")
    messages = [U, answer, A2, U2]

    rendered = counter.render(messages)

    assert counter.decode(rendered.token_ids) == rendered.text
    written = counter.render([U, say("assistant", "ab ab"), A2, U2])
    assert rendered.text == written.text
    assert len(rendered.token_ids) > len(written.token_ids)
    ids, made = rendered.token_ids, answer.generated.token_ids
    assert any(ids[i : i + len(made)] == made for i in range(len(ids)))
    assert counter.num_rewritten == 0


@each_kind
def test_an_answer_that_is_trimmed_is_counted_and_the_others_are_kept(kind):
    counter = ChatTokenizer(kind_tokenizer(kind))
    trimmed, kept = generated(counter, "\n ab "), generated(counter, "ab ab")

    rendered = counter.render([U, trimmed, U2, kept, U])
    counter.render([U, trimmed, U2, kept, U, A2])

    assert counter.num_rewritten == (kind != "chatml")
    ids, made = rendered.token_ids, kept.generated.token_ids
    assert any(ids[i : i + len(made)] == made for i in range(len(ids)))
    assert counter.decode(ids) == rendered.text


def test_the_space_that_an_answer_begins_with_is_kept_where_the_template_writes_one():
    counter = ChatTokenizer(kind_tokenizer("mistral"))
    answer = generated(counter, " ab ab")
    prompt = counter.render([U]).token_ids

    rendered = counter.render([U, answer, U2])

    known = prompt + answer.generated.token_ids
    assert rendered.token_ids[: len(known)] == known
    assert counter.num_rewritten == 0


def test_a_thought_is_stripped_from_the_past_and_counted():
    counter = ChatTokenizer(kind_tokenizer("qwen3"))
    thought = generated(counter, "<think>\nt\n</think>\n\nab", ids=(1, 2, 3))

    rendered = counter.render([U, thought, U2])

    assert "assistant\nab<|im_end|>" in rendered.text
    assert counter.decode(rendered.token_ids) == rendered.text
    assert counter.num_rewritten == 1


def test_a_thought_without_tokens_of_its_own_is_not_spliced_in():
    tokenizer = kind_tokenizer("chatml")
    tokenizer.chat_template += "{# </think> #}"
    counter = ChatTokenizer(tokenizer)

    rendered = counter.render([U, generated(counter, "<think>t</think>ab"), U2])

    assert counter.decode(rendered.token_ids) == rendered.text
    assert "think" not in rendered.text


@each_kind
def test_a_template_that_rewrites_what_was_said_is_known(kind):
    assert kind_counter(kind).is_concatenative == (kind == "chatml")
