"""A template that prints a date prints the named one, and the same for the same day."""

from datetime import date
from functools import cache

import pytest

from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.protocols import counter_at
from agentmem.testing import WordCounter
from agentmem.types import GeneratedIds
from tests.inference.kinds import KINDS, kind_counter
from tests.inference.tiny import CHATML, say, tiny_tokenizer

HEADS = {
    "a function": "{{ strftime_now('%A, %d %B %Y') }}",
    "no leading zero": "{{ strftime_now('%B %-d, %Y') }}",
    "if there is a function": "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}"
    "{% endif %}",
    "a variable": "{% if not date_string is defined %}{% set date_string = '1' %}{% endif %}"
    "{{ date_string }}",
    "year and month by themselves": "{% set y = strftime_now('%Y') | int %}{{ strftime_now('%m') }}"
    "/{{ y }} (not {{ y - 1 }})",
    "in a macro": "{% macro head() %}{{ strftime_now('%Y-%m-%d') }}{% endmacro %}{{ head() }}",
    "only without a system message": "{% if messages[0].role != 'system' %}"
    "{{ strftime_now('%Y-%m-%d') }}{% endif %}",
    "only with a system message": "{% if messages[0].role == 'system' %}"
    "{{ strftime_now('%Y-%m-%d') }}{% endif %}",
}
PRINTED = {
    "a function": "Saturday, 02 May 2026",
    "no leading zero": "May 2, 2026",
    "if there is a function": "02 May 2026",
    "a variable": "02 May 2026",
    "year and month by themselves": "05/2026 (not 2025)",
    "in a macro": "2026-05-02",
    "only without a system message": "2026-05-02",
    "only with a system message": "2026-05-02",
}
each_head = pytest.mark.parametrize("head", HEADS)
DAY = date(2026, 5, 2)
MESSAGES = [say("system", "s"), say("user", "u")]


@cache
def counter_with(head):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = HEADS[head] + CHATML
    return ChatTokenizer(tokenizer)


def messages_for(head):
    return MESSAGES[1:] if head == "only without a system message" else MESSAGES


@each_head
def test_the_named_date_is_printed(head):
    text = counter_with(head).at_date(DAY).render(messages_for(head)).text

    assert text.startswith(f"{PRINTED[head]}<|im_start|>")


@each_head
def test_the_same_day_is_the_same_counter_and_another_one_has_its_own_fingerprint(head):
    counter = counter_with(head)
    dated = counter.at_date(DAY)

    assert counter.at_date(DAY) is dated
    assert dated.at_date(DAY) is dated
    others = [counter, counter.at_date(date(2026, 6, 3)), counter.at_date(date(2025, 5, 2))]
    assert len({dated.fingerprint, *(other.fingerprint for other in others)}) == 4
    assert dated.fingerprint == ChatTokenizer(counter._encoder._tokenizer).at_date(DAY).fingerprint


def test_days_that_print_the_same_are_one_counter():
    counter = counter_with("year and month by themselves")

    assert counter.at_date(date(2026, 5, 30)) is counter.at_date(DAY)
    assert counter.at_date(date(2024, 7, 1)) is counter


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_without_a_date_has_one_counter_for_all_days(kind):
    counter = kind_counter(kind)

    assert counter.at_date(DAY) is counter
    assert counter_at(counter, DAY) is counter


def test_a_counter_that_knows_no_dates_stays_as_it_is():
    counter = WordCounter()

    assert counter_at(counter, DAY) is counter
    assert counter_at(counter_with("a function"), DAY) is counter_with("a function").at_date(DAY)


def test_ids_are_exact_and_generated_ones_are_kept_at_a_date():
    counter = counter_with("a function").at_date(DAY)
    ids = tuple(counter._encoder.encode(["a", "b"]))
    made = GeneratedIds(fingerprint=counter.fingerprint, token_ids=ids)
    messages = [*MESSAGES, say("assistant", "ab", generated=made), say("user", "v")]

    rendered = counter.render(messages)

    assert counter.decode(rendered.token_ids) == rendered.text
    assert counter.num_rewritten == 0
    prompts = [counter.render(messages[:end]).token_ids for end in (2, 4)]
    assert prompts[1][: len(prompts[0])] == prompts[0]


def test_what_is_remembered_at_any_date_is_forgotten_together():
    counter = counter_with("a function")
    dated = counter.at_date(DAY)
    dated.render(MESSAGES)
    assert len(dated._rendered)

    counter.forget()

    assert not len(dated._rendered)


def test_the_names_of_days_and_months_are_english_in_every_locale():
    counter = counter_with("a function")

    for month, name in enumerate(("January", "February", "March", "April", "May", "June"), 1):
        assert name in counter.at_date(date(2026, month, 1)).render(MESSAGES).text
