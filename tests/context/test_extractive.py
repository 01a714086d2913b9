import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.context import ExtractiveSummarizer
from agentmem.protocols import Passage
from agentmem.types import Role


def count(text):
    return len(text.split())


def passages(*texts):
    return [
        Passage(position=index, role=Role.USER if index % 2 else Role.ASSISTANT, text=text)
        for index, text in enumerate(texts, start=1)
    ]


def summarize(*texts, max_tokens=40):
    return ExtractiveSummarizer().summarize(passages(*texts), max_tokens=max_tokens, count=count)


def test_sentences_with_numbers_and_decisions_are_kept_before_small_talk():
    text = summarize(
        "Well, hello there, how are things going with everything over on your side of it today?",
        "We decided to take Hotel Lisboa for 92 EUR a night.",
        "Oh that is so very lovely, really, so very nice of it, oh yes indeed, what fun it is.",
        max_tokens=16,
    )

    assert text == "[2] assistant: We decided to take Hotel Lisboa for 92 EUR a night."


def test_sentences_come_in_the_order_they_were_said_behind_who_said_them():
    text = summarize("Room 1 costs 10 EUR. Room 2 costs 20 EUR.", "Take room 2 for 20 EUR.")

    assert text.splitlines() == [
        "[1] user: Room 1 costs 10 EUR. Room 2 costs 20 EUR.",
        "[2] assistant: Take room 2 for 20 EUR.",
    ]


def test_the_same_thing_is_not_said_twice_while_others_wait():
    text = summarize(
        *["Room 1 costs 10 EUR."] * 5, "The museum closes at 6 on Monday.", max_tokens=16
    )

    assert "museum" in text


@pytest.mark.parametrize(
    "text",
    [
        "\u9884\u7b97\u662f500\u6b27\u5143\u3002\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff01",
        "\u0627\u0644\u0633\u0639\u0631 92 \u064a\u0648\u0631\u0648\u061f \u0646\u0639\u0645",
    ],
    ids=["chinese", "arabic"],
)
def test_other_scripts_are_cut_into_sentences_too(text):
    made = ExtractiveSummarizer().summarize(passages(text), max_tokens=60, count=len)

    assert made.startswith("[1] user: ")
    assert any(c.isdigit() for c in made)


@pytest.mark.slow
@given(st.lists(st.text(max_size=300), max_size=8), st.integers(0, 60))
def test_a_summary_never_takes_more_than_it_may_and_is_the_same_again(texts, max_tokens):
    text = summarize(*texts, max_tokens=max_tokens)

    assert count(text) <= max_tokens
    assert text == summarize(*texts, max_tokens=max_tokens)


@pytest.mark.slow
def test_a_huge_listing_is_summed_up_in_bounded_time():
    text = summarize("\n".join(f"line {n} costs {n} EUR" for n in range(50_000)))

    assert count(text) <= 40


def chosen(*said):
    """Which of some passages a summary with room for one of them quotes; the first is no match."""
    filler = Passage(position=1, role=Role.USER, text="Hm.")
    made = ExtractiveSummarizer().summarize([filler, *said], max_tokens=10, count=count)
    return [line.split("]")[0][1:] for line in made.split("\n")]


def passage(position, text, role=Role.ASSISTANT):
    return Passage(position=position, role=role, text=text)


def test_a_user_is_quoted_before_an_assistant_and_that_before_a_tool():
    user = passage(4, "The old harbour is east of town.", Role.USER)
    assistant = passage(3, "The old harbour is north of town.")
    tool = passage(2, "The old harbour is south of town.", Role.TOOL)

    assert chosen(tool, assistant) == ["3"]
    assert chosen(tool, user) == ["4"]
    assert chosen(assistant, user) == ["4"]


def test_what_was_decided_is_quoted_before_what_is_only_told():
    plain = passage(2, "The old harbour is lovely in town.")

    assert chosen(plain, passage(3, "The old harbour must wait in town.")) == ["3"]
    assert chosen(plain, passage(3, "The old harbour is seen in town.")) == ["2"]


def test_a_user_is_quoted_before_what_an_assistant_decided():
    decided = passage(2, "The old harbour must have ships there.")
    user = passage(3, "The old harbour must wait for ships.", Role.USER)

    assert chosen(decided, user) == ["3"]


def test_a_topic_that_was_quoted_makes_room_for_another():
    """The harbour is told of most, and counts less once it has been quoted."""
    texts = ["Hm.", "Harbour ships.", "Harbour boats.", "Harbour docks.", "Trains leave."]
    said = [passage(n, text) for n, text in enumerate(texts, 1)]

    made = ExtractiveSummarizer().summarize(said, max_tokens=12, count=count)

    assert [line.split(": ")[1] for line in made.split("\n")] == [*texts[1:3], texts[4]]
