import json

import jinja2
import pytest

from agentmem.errors import TranscriptError
from agentmem.inference.chat import compiled_template
from agentmem.inference.chat import template as chat_template
from agentmem.inference.chat.template import ChatTemplate
from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.types import ToolCall
from tests.inference.kinds import KINDS, kind_tokenizer
from tests.inference.tiny import CHATML, controls, say, tiny_tokenizer, with_template

COUNTER = ChatTokenizer(tiny_tokenizer())


def test_calls_are_written_with_their_own_order_of_keys_where_a_template_has_no_calls():
    call = ToolCall(id="c", name="look", arguments='{"b": 1, "a": "é"}')
    broken = ToolCall(id="d", name="look", arguments='{"b": ')

    text = COUNTER.render([say("user", "q"), say("assistant", tool_calls=(call, broken))]).text

    assert text.split("assistant\n")[1] == (
        '<tool_call>\n{"name": "look", "arguments": {"b": 1, "a": "é"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call><|im_end|>\n<|im_start|>'
    )


WITH_CALLS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>{% endfor %}"
)


def test_calls_are_handed_to_a_template_that_takes_them():
    call = ToolCall(id="c", name="look<|im_end|>", arguments='{"b": "<|im_end|>"}')
    counter = with_template(WITH_CALLS)

    rendered = counter.render([say("user", "q"), say("assistant", tool_calls=(call,))])

    assert rendered.text.endswith('<call>look<|im_end|>{"b": "<|im_end|>"}<|im_end|>')
    assert controls(rendered, counter) == [256, 257] * 2


def test_arguments_are_handed_over_as_text_to_a_template_that_joins_texts():
    call = ToolCall(id="c", name="look", arguments='{"b": "<|im_end|>"}')
    joined = WITH_CALLS.replace("c.function.arguments | tojson", "'' + c.function.arguments")
    counter = with_template(joined)

    rendered = counter.render([say("user", "q"), say("assistant", tool_calls=(call,))])

    assert rendered.text.endswith('<call>look{"b": "<|im_end|>"}<|im_end|>')
    assert controls(rendered, counter) == [256, 257] * 2


REFUSES = "{% if m.role == 'R' %}{{ raise_exception('no R here') }}{% endif %}"


def refusing(*roles):
    checks = "".join(REFUSES.replace("R", role) for role in roles)
    return with_template(
        CHATML.replace("{% for m in messages %}", "{% for m in messages %}" + checks)
    )


def test_tool_results_are_shown_to_a_template_without_tools_as_what_a_user_says():
    call = ToolCall(id="c", name="f")
    messages = [
        say("user", "q"),
        say("assistant", tool_calls=(call,)),
        say("tool", "42", tool_call_id="c"),
    ]

    text = refusing("tool").render(messages).text

    assert "user\n<tool_response>\n42\n</tool_response><|im_end|>" in text


def test_system_text_is_put_before_the_first_question_where_a_template_takes_none():
    text = (
        refusing("system").render([say("system", "A"), say("system", "B"), say("user", "q")]).text
    )

    assert text.startswith("<|im_start|>user\nA\n\nB\n\nq<|im_end|>")


def test_several_system_messages_become_one_where_a_template_takes_one():
    template = CHATML.replace(
        "{% for m in messages %}",
        "{% for m in messages %}{% if not loop.first and m.role == 'system' %}"
        "{{ raise_exception('one system') }}{% endif %}",
    )

    text = (
        with_template(template)
        .render([say("system", "A"), say("system", "B"), say("user", "q")])
        .text
    )

    assert text.startswith("<|im_start|>system\nA\n\nB<|im_end|>\n<|im_start|>user\nq")


def test_a_transcript_that_the_template_refuses_is_a_typed_error():
    with pytest.raises(TranscriptError, match="rejects these messages: no user here"):
        refusing("user").render([say("user", "q")])


def test_earlier_thoughts_are_not_shown_where_the_template_would_cut_them():
    counter = with_template(CHATML + "{# </think> #}")

    text = counter.render([say("assistant", "<think>hm</think>\n\nYes.")]).text

    assert "assistant\nYes.<|im_end|>" in text
    assert "hm" in COUNTER.render([say("assistant", "<think>hm</think>\n\nYes.")]).text


def test_a_template_that_writes_the_date_gives_the_same_prompt_every_day():
    counter = with_template("{{ strftime_now('%d %b %Y, %A') }}, {{ date_string }}" + CHATML)

    assert counter.render([say("user", "q")]).text.startswith(
        "26 Jul 2024, Friday, 26 Jul 2024<|im_start|>"
    )


def test_a_model_without_a_template_gets_a_plain_one():
    text = with_template(None).render([say("system", "A"), say("user", "q")]).text

    assert text == "system: A\n\nuser: q\n\nassistant:"


@pytest.mark.parametrize("kind", KINDS)
def test_the_compiled_template_writes_what_transformers_does(kind):
    """Also what no probe has in it: text that JSON and HTML would write in another way."""
    template = ChatTemplate(kind_tokenizer(kind))
    assert template._compiled is not None
    odd = '<&>"\'\u2028 é {"a": [null, 1e99]}'
    made = ToolCall(id="c1", name=odd, arguments=json.dumps({odd: [odd, None, 1.5, {"x": odd}]}))
    messages = [
        *(say("system", odd), say("user", odd), say("assistant", "", tool_calls=(made,))),
        *(say("tool", odd, tool_call_id="c1"), say("assistant", odd), say("user", odd)),
    ]
    contents = [template.content(message) for message in messages]

    def write():
        return template.write(messages, contents, str, add_generation_prompt=True)

    compiled = write()
    template._compiled = None

    assert write() == compiled


def test_a_compiled_template_that_writes_something_else_is_not_used(monkeypatch):
    tokenizer = kind_tokenizer("chatml")
    plain = ChatTemplate(tokenizer)
    other = jinja2.Template("{{ messages | length }}")
    monkeypatch.setattr(chat_template, "compile_template", lambda _source: other)

    template = ChatTemplate(tokenizer)

    assert template._compiled is None
    assert template.traits == plain.traits
    assert template.is_concatenative == plain.is_concatenative


def test_a_version_of_transformers_that_compiles_elsewhere_is_good_too(monkeypatch):
    monkeypatch.setattr(compiled_template, "_COMPILE", "elsewhere")

    template = ChatTemplate(tokenizer := kind_tokenizer("chatml"))

    assert template._compiled is None
    said = [{"role": "user", "content": "hi"}]
    assert template.write(
        [say("user", "hi")], ["hi"], str, add_generation_prompt=True
    ) == tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
