"""Which statements are replaced by a later one, told by words alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replacement_marks import marks_of, measure

from agentmem.context import num_earlier, replaced_statements

OLD = "The budget meeting is on Thursday."


def replaces(new, *old):
    return replaced_statements(new, list(enumerate(old or [OLD], 1)))


def test_of_written_dialogues_no_mark_is_wrong_and_most_are_found():
    figures, faults = measure()

    assert figures["expected"] == 67
    assert figures["wrong"] == 0, faults
    assert figures["right"] >= 56, faults


@pytest.mark.parametrize(
    "new",
    [
        "We moved the budget meeting to Friday.",
        "The budget meeting is on Friday now.",
        "The budget meeting was moved from Thursday to Friday.",
        "The budget meeting is on Friday from now on.",
        "Good morning! The budget meeting was postponed to Friday. See you.",
    ],
)
def test_a_plain_change_replaces(new):
    assert replaces(new) == (1,)


@pytest.mark.parametrize(
    "new",
    [
        "The budget meeting was moved from Monday to Friday.",  # another one
        "The budget meeting is on Thursday now.",
        "The budget meeting was moved to room 5.",
        "Her budget meeting was moved to Friday; our budget meeting stays on Thursday.",
        "The budget meeting will not be moved to Friday.",
        "They say the budget meeting might be moved to Friday.",
        "The new budget meeting is on Friday.",
        "The budget meeting is on Friday.",  # on both days, for all that is said
        "",
    ],
)
def test_anything_less_plain_does_not(new):
    assert replaces(new) == ()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("My dentist is on Monday.", "My dentist is on Friday.", (1,)),
        ("The wifi code is BLUE-7.", "The wifi code is RED-9.", (1,)),
        (
            "\u4f1a\u8bae\u5728\u4e09\u697c\u3002",
            "\u4f1a\u8bae\u6539\u5230\u4e94\u697c\u4e86\u3002",
            (1,),
        ),
        (
            "\u4f1a\u8bae\u5728\u4e09\u697c\u3002",
            "\u5c55\u89c8\u6539\u5230\u4e94\u697c\u4e86\u3002",
            (),
        ),
        ("The shop is open on Monday.", "The shop is open on Friday.", ()),
        ("Fact number 3 is that it rains.", "Fact number 4 is that it rains.", ()),
    ],
)
def test_the_same_form_with_another_value_replaces_what_one_has_once(old, new, expected):
    assert replaces(new, old) == expected


def test_with_two_different_statements_of_the_subject_none_is_replaced():
    assert (
        replaces(
            "The meeting moved to Friday.", "The meeting is Monday.", "The meeting is Tuesday."
        )
        == ()
    )
    assert replaces(
        "The meeting moved to Friday.", "The meeting is Monday.", "The meeting is Monday."
    ) == (1, 2)


def test_a_word_that_many_messages_have_is_no_subject():
    others = [f"The meeting about topic {number} was long." for number in range(4)]
    assert replaces("The meeting is on Friday now.", "The meeting is on Thursday.", *others) == ()


def test_a_correction_without_a_subject_is_of_the_message_before():
    assert replaces("Actually, make that Sunday.", "Book a table for Saturday.") == (1,)
    assert (
        replaces("Actually, make that Sunday.", "Book a table for Saturday.", "And a taxi.") == ()
    )


def test_most_texts_are_compared_with_nothing():
    assert num_earlier("What is the weather like?") == 0
    assert num_earlier("Please write the report.") == 0
    assert (
        0
        < num_earlier("The report is 5 pages long.")
        < num_earlier("The report is now 5 pages long.")
    )


@given(st.lists(st.text(max_size=60), max_size=6))
def test_any_text_is_read(texts):
    assert all(1 <= old < new <= len(texts) for old, new in marks_of(texts))


def test_a_very_long_text_is_read_quickly():
    text = "the meeting moved 5 " * 50_000
    assert replaced_statements(text, [(1, text), (2, OLD)]) == ()
