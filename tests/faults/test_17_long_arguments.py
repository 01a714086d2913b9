"""A call whose arguments are over the window is shown clipped, and stays a call."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem import Budget, Memory, Policy, ToolCall
from agentmem.context.clip_calls import clip_arguments, share_out
from agentmem.errors import ContextOverflowError
from agentmem.testing import WordCounter
from agentmem.types import DisplayForm, Role, TruncationReason, common_prefix
from tests.builders import result, say, words
from tests.context.replay import Replay

MARKER = "[... clipped; message 2 has all of it ...]"


class ArgumentCounter(WordCounter):
    """Counts the words and signs of arguments too, as a tokenizer does."""

    fingerprint = "arguments"

    @staticmethod
    def _words(message):
        calls = [
            word
            for call in message.tool_calls
            for word in (call.id, *re.findall(r"\w+|[^\w\s]", f"{call.name} {call.arguments}"))
        ]
        return [*message.text.split(), *calls]


def replay(prompt=200, **shares):
    budget = Budget(context=prompt + 1, reply=1, **({"retrieved": 0, "summary": 0} | shares))
    return Replay(budget, policy=Policy(summarizer=None), counter=ArgumentCounter())


def calling(*arguments, names=None, text=""):
    names = names or ["write"] * len(arguments)
    calls = [
        ToolCall(id=f"c{index}", name=name, arguments=one)
        for index, (one, name) in enumerate(zip(arguments, names, strict=True))
    ]
    return say("assistant", text, tool_calls=tuple(calls))


def assembled(*messages, prompt=200):
    """Say a question and *messages*; return the conversation, its prompt, and the calls shown."""
    agent = replay(prompt)
    agent.say(say("user", "go"), *messages)
    made = agent.assemble()
    assert made.num_tokens <= prompt
    assert made.token_ids == ArgumentCounter().render(made.messages).token_ids
    assert agent.check() == ()
    return agent, made, next(m for m in made.messages if m.tool_calls).tool_calls


LONG = words(3000)


def test_a_long_text_in_arguments_is_clipped_in_its_middle_and_named():
    written = json.dumps({"path": "a.txt", "content": f"begin {LONG} end", "mode": 0o644})

    agent, prompt, (call,) = assembled(calling(written), result("c0", "written"))

    shown = json.loads(call.arguments)
    assert (shown["path"], shown["mode"]) == ("a.txt", 0o644)
    assert shown["content"].startswith("begin w w")
    assert shown["content"].endswith("w w end")
    assert MARKER in shown["content"]
    assert prompt.messages[-1].text == "written"
    assert prompt.num_tokens >= 190
    (record,) = prompt.truncations
    assert (record.reason, record.first, record.last) == (TruncationReason.CLIPPED, 2, 2)
    assert record.destination == "store"
    assert agent.messages[1].message.tool_calls[0].arguments == written


LONG_ARGUMENTS = {
    "nested": {"file": {"parts": [{"body": LONG}, {"body": "short"}]}},
    "several": {"old": LONG, "new": LONG, "path": "x"},
    "a key": {"k" + LONG: 1},
    "many items": {"rows": list(range(5000))},
    "many strings": {"names": [f"name {number}" for number in range(2000)]},
    "many keys": {f"key{number}": number for number in range(2000)},
    "escapes": {"text": 'say "hi"\n\t\\ ' * 800},
    "another script": {"text": "好的。" * 2000},
    "emoji": {"text": "🎉🇵🇹" * 1500},
}


@pytest.mark.parametrize("name", LONG_ARGUMENTS)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_clipped_arguments_of_any_form_are_an_object(name, is_ascii):
    written = json.dumps(LONG_ARGUMENTS[name], ensure_ascii=is_ascii)

    _, prompt, (call,) = assembled(calling(written), result("c0", "done"))

    shown = json.loads(call.arguments)
    assert isinstance(shown, dict)
    assert MARKER in call.arguments
    call.arguments.encode()
    json.dumps(shown, ensure_ascii=False).encode()
    assert prompt.num_tokens <= 200


@pytest.mark.parametrize("written", [LONG, f"[{LONG!r}]", '{"content": "' + LONG, "{" * 3000])
def test_arguments_that_are_no_object_are_clipped_as_text(written):
    _, _, (call,) = assembled(calling(written), result("c0", "done"))

    assert MARKER in call.arguments
    assert call.arguments[:5] == written[:5]


def test_parallel_calls_share_what_there_is():
    long = json.dumps({"content": LONG})

    _, prompt, calls = assembled(
        calling(long, '{"path": "b.txt"}', long), *(result(f"c{i}", f"r{i}") for i in range(3))
    )

    assert calls[1].arguments == '{"path": "b.txt"}'
    assert len(calls[0].arguments) == len(calls[2].arguments)
    assert [m.text for m in prompt.messages if m.role is Role.TOOL] == ["r0", "r1", "r2"]


def test_a_long_text_beside_long_arguments_is_clipped_too():
    long = json.dumps({"content": LONG})

    _, prompt, (call,) = assembled(calling(long, text=f"Now {LONG}"), result("c0", "done"))

    (message,) = [m for m in prompt.messages if m.tool_calls]
    assert message.text.startswith("Now w")
    assert "message 2 has all" in message.text
    assert MARKER in call.arguments


def test_numbers_of_clipped_arguments_stay_as_they_were_written():
    body = json.dumps(LONG)
    written = f'{{"a": 0.1234567890123456789, "b": 1.10, "c": 1e400,  "text": {body}, "a": 7}}'

    _, _, (call,) = assembled(calling(written), result("c0", "done"))

    assert call.arguments.startswith('{"a": 0.1234567890123456789, "b": 1.10, "c": 1e400,  "text"')
    assert call.arguments.endswith('", "a": 7}')


def test_many_long_results_of_one_call_are_each_clipped():
    number = 12
    texts = [f"first{i} {words(400)} last{i}" for i in range(number)]
    calls = calling(*["{}"] * number)

    _, prompt, _ = assembled(
        calls, *(result(f"c{i}", text) for i, text in enumerate(texts)), prompt=500
    )

    shown = [m.text for m in prompt.messages if m.role is Role.TOOL]
    assert len(shown) == number
    for index, text in enumerate(shown):
        assert text.startswith(f"first{index} w")
        assert text.endswith(f"last{index}")
    assert prompt.num_tokens >= 480


def test_short_results_stay_whole_beside_a_long_one():
    _, prompt, _ = assembled(
        calling("{}", "{}"), result("c0", words(900)), result("c1", words(30, "short"))
    )

    assert prompt.messages[-1].text == words(30, "short")


def test_names_and_ids_cannot_be_clipped_and_the_error_says_how_many_tokens_there_are():
    agent = replay()
    calls = [ToolCall(id=f"c{i}", name="name_of_a_tool") for i in range(100)]
    agent.say(say("user", "go"), say("assistant", tool_calls=tuple(calls)))
    agent.say(*(result(f"c{i}") for i in range(100)))

    with pytest.raises(ContextOverflowError) as caught:
        agent.assemble()

    assert caught.value.tokens_by_tier["current"] > 200


def test_without_clipping_long_arguments_are_an_error():
    agent = replay(clip=False)
    agent.say(say("user", "go"), calling(json.dumps({"content": LONG})), result("c0", "done"))

    with pytest.raises(ContextOverflowError):
        agent.assemble()


def test_what_is_clipped_is_shown_alike_in_the_next_prompts_and_after_reopening(tmp_path):
    url, budget = f"sqlite:///{tmp_path / 'a.db'}", Budget(context=300, reply=50)
    written = json.dumps({"path": "a.txt", "content": LONG})
    with Memory.open(url, counter=ArgumentCounter(), budget=budget) as memory:
        session = memory.session("s")
        session.append("user", "write it")
        session.append("assistant", tool_calls=[ToolCall(id="c", name="f", arguments=written)])
        session.append("tool", "written", tool_call_id="c")
        one = session.assemble()
        again = session.assemble()
    with Memory.open(url, counter=ArgumentCounter(), budget=budget) as memory:
        session = memory.session("s")
        reopened = session.assemble()
        session.append("assistant", "Done.")
        session.append("user", "thanks")
        after = session.assemble()
        stored = session.messages(2, 2)[0].message.tool_calls[0].arguments
        assert session.check() == ()

    assert one.token_ids == again.token_ids == reopened.token_ids
    assert stored == written
    if any(span.form is DisplayForm.CLIPPED for span in after.layout):
        assert common_prefix(one.token_ids, after.token_ids) >= one.num_tokens - 1


def test_a_tool_loop_after_a_clipped_call_goes_on(tmp_path):
    budget = Budget(context=300, reply=50)
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with Memory.open(url, counter=ArgumentCounter(), budget=budget) as memory:
        session = memory.session("s")
        session.append("user", "write it")
        for number in range(6):
            long = json.dumps({"content": f"{number} {LONG}"})
            call = ToolCall(id=f"c{number}", name="write", arguments=long)
            session.append("assistant", tool_calls=[call])
            session.append("tool", f"written {number}", tool_call_id=call.id)
            prompt = session.assemble()
            assert prompt.num_tokens <= 250
            assert prompt.messages[-1].text == f"written {number}"
        assert session.check() == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner),
    max_leaves=12,
)


@pytest.mark.slow
@given(
    value=st.dictionaries(st.text(max_size=50), json_values, max_size=6),
    most=st.integers(0, 400),
    is_ascii=st.booleans(),
)
def test_any_object_stays_one_and_gets_no_longer(value, most, is_ascii):
    written = json.dumps(value, ensure_ascii=is_ascii)

    shown = clip_arguments(written, most, MARKER)

    assert isinstance(json.loads(shown), dict)
    assert len(shown) <= len(written)
    # No half of a pair comes about.
    json.dumps(json.loads(shown), ensure_ascii=False).encode()


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8), st.integers(0, 500))
def test_what_is_shared_out_is_all_there_is_and_evens_out(lengths, total):
    given_out = share_out(lengths, total)

    assert all(got <= length for got, length in zip(given_out, lengths, strict=True))
    assert sum(given_out) == min(total, sum(lengths))
    cut = [got for got, length in zip(given_out, lengths, strict=True) if got < length]
    assert max(cut, default=0) - min(cut, default=0) <= 1
