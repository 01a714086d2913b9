"""The system text that a template writes by itself: it stays, or its loss is told."""

from functools import cache

import pytest

from agentmem import Budget, Memory
from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.testing import WordCounter
from agentmem.types import PrefixBreak
from tests.inference.kinds import KINDS, kind_counter, kind_tokenizer
from tests.inference.tiny import CHATML

OWN = "You are a helpful assistant named Probe."
IF_NONE = (
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\n" + OWN + "<|im_end|>\n' }}"
    "{% endif %}"
)
TEMPLATES = {
    "none given": IF_NONE + CHATML,
    "in a variable": "{% set s = messages[0].content if messages[0].role == 'system' else '"
    + OWN
    + "' %}{{ '<|im_start|>system\n' + s + '<|im_end|>\n' }}"
    + CHATML.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"),
    "behind a head that stays": "{% set s = messages[0].content if messages[0].role == 'system'"
    " else '"
    + OWN
    + "' %}{{ '<|im_start|>system\nMode: brief\n' + s + '<|im_end|>\n' }}"
    + CHATML.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"),
    "with a date": IF_NONE.replace("named Probe.", "named Probe. ' + date_string + '") + CHATML,
}
NONE = {
    "shown in any case": "<|im_start|>system\n" + OWN + "<|im_end|>\n" + CHATML,
    "only beside tools": "{% if tools %}" + IF_NONE + "{% endif %}" + CHATML,
    "an empty system turn": IF_NONE.replace(OWN, "") + CHATML,
}


@cache
def counter_with(template):
    tokenizer = kind_tokenizer("chatml")
    tokenizer.chat_template = template
    return ChatTokenizer(tokenizer)


def session_of(counter):
    return Memory.open("sqlite://", counter=counter).session("s", user="u")


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_text_is_found_by_trying(name):
    found = counter_with(TEMPLATES[name]).default_system

    assert found == (f"{OWN} 26 Jul 2024" if name == "with a date" else OWN)


@pytest.mark.parametrize("name", NONE)
def test_a_text_that_no_system_message_takes_away_is_no_default(name):
    assert counter_with(NONE[name]).default_system is None


def test_templates_without_one_and_counters_that_are_not_local_have_none():
    assert all(kind_counter(kind).default_system is None for kind in KINDS)
    session = session_of(WordCounter())
    session.append("user", "hi")

    prompt = session.assemble()

    assert prompt.default_system is None
    assert "system text" not in prompt.explain()


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_prompt_says_whether_the_text_is_shown(name):
    counter = counter_with(TEMPLATES[name])
    session = session_of(counter)
    session.append("user", "hi")

    first = session.assemble()
    session.pin("task", "be brief")
    second = session.assemble()

    assert OWN in first.text
    assert first.default_system == second.default_system
    assert first.default_system in first.text
    assert "own system text is shown" in first.explain()
    assert OWN not in second.text
    assert "not shown, since pins take its place" in second.explain()
    assert second.reuse.broken_by is PrefixBreak.PINS
    assert "pins replace the template's default system text" in second.reuse.detail


def test_the_text_comes_back_with_the_last_pin_and_other_pins_say_nothing_of_it():
    session = session_of(counter_with(TEMPLATES["none given"]))
    session.append("user", "hi")
    session.pin("one", "be brief")
    session.assemble()
    session.pin("two", "be kind")
    more = session.assemble()
    session.unpin("one")
    session.unpin("two")

    last = session.assemble()

    assert "own system text" not in more.reuse.detail
    assert "pins no longer replace the template's default system text" in last.reuse.detail
    assert OWN in last.text


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_text_stays_when_the_first_summary_comes(name):
    counter = counter_with(TEMPLATES[name])
    memory = Memory.open("sqlite://", counter=counter)
    session = memory.session("s", user="u")
    budget = Budget(context=700, reply=20, summary=0.3)

    prompts = []
    for number in range(30):
        session.append("user", f"Deadline {number} is on day {number}; never exceed {number} EUR.")
        session.append("assistant", f"Noted number {number}.")
        prompts.append(session.assemble(budget=budget))

    assert any(prompt.summaries for prompt in prompts)
    assert all(OWN in prompt.text for prompt in prompts)
    assert all(prompt.reuse.common_tokens for prompt in prompts[1:])
