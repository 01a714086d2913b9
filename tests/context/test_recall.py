"""How recalled messages are written."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from agentmem.context.recall import HEADING, one_per_message, recall_message
from agentmem.protocols import Hit
from agentmem.types import BranchId, ImagePart, Message, Role, TextPart
from agentmem.types.passages import split_passages
from agentmem.types.sentences import OMITTED
from tests.builders import say, stored

MAY = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def hit(position, text, at=MAY, *, other=None, **fields):
    """A message of this conversation, or of the branch *other* of another session."""
    (one,) = stored(say(fields.pop("role", "user"), text, **fields), start=position)
    branch = BranchId(other or 1)
    return Hit(
        stored=replace(one, created_at=at, branch_id=branch), score=1.0, is_local=other is None
    )


def lines(*hits):
    (message,) = recall_message(hits)
    heading, *rest = message.text.split("\n")
    assert heading == HEADING
    return rest


def test_nothing_recalled_is_no_message():
    assert recall_message(()) == ()


def test_a_sitting_has_one_line_with_day_and_time():
    soon = MAY + timedelta(minutes=20)
    assert lines(hit(2, "Fine!", soon, role="assistant"), hit(1, "How are you?")) == [
        "8 May 2023 13:56",
        "user: How are you?",
        "assistant: Fine!",
    ]


def test_a_name_stands_in_place_of_the_role():
    assert lines(hit(1, "hi", name="Anna"))[1] == "Anna: hi"
    result = stored(say("tool", "92 EUR", tool_call_id="c1", name="search"))[0]
    assert (
        lines(Hit(stored=replace(result, created_at=MAY), score=1))[1]
        == "tool result (search): 92 EUR"
    )


def test_the_year_stands_where_it_changes():
    days = (MAY, MAY + timedelta(days=2), MAY + timedelta(days=300), MAY + timedelta(days=301))
    found = lines(*(hit(i, "x", day) for i, day in enumerate(days, start=1)))
    assert found[::2] == [
        "8 May 2023 13:56",
        "10 May 13:56",
        "3 March 2024 13:56",
        "4 March 13:56",
    ]


def test_a_pause_of_more_than_an_hour_begins_a_sitting():
    found = lines(
        hit(1, "a"),
        hit(2, "b", MAY + timedelta(hours=1)),
        hit(3, "c", MAY + timedelta(hours=2, seconds=1)),
    )
    assert found == ["8 May 2023 13:56", "user: a", "user: b", "8 May 15:56", "user: c"]


def test_what_was_said_in_another_session_says_so():
    found = lines(hit(1, "mine"), hit(1, "other", other=7), hit(2, "third", other=8))
    assert found == [
        "8 May 2023 13:56",
        "user: mine",
        "8 May 13:56, in another session",
        "user: other",
        "8 May 13:56, in another session",
        "user: third",
    ]


def test_order_within_a_branch_is_that_of_positions_whatever_the_clock():
    found = lines(hit(2, "second", MAY - timedelta(minutes=5)), hit(1, "first"))
    assert found[1:] == ["user: first", "user: second"]


def test_times_are_in_the_zone_that_they_come_with():
    east = MAY.astimezone(timezone(timedelta(hours=9)))
    assert lines(hit(1, "x", east)) == ["8 May 2023 22:56", "user: x"]


def test_the_words_of_a_text_stay_as_they_were_said():
    text = "  two\n\nlines \t"
    image = Message(role=Role.USER, parts=(TextPart(text="see"), ImagePart(url="u", alt="a cat")))
    (message,) = recall_message([hit(1, text)])
    assert message.text.endswith("user:   two\n| lines \t")
    assert message.role is Role.USER
    (shown,) = recall_message([Hit(stored=stored(image)[0], score=1)])
    assert shown.text.endswith("user: see\n| [image: a cat]")


@given(st.permutations(range(1, 9)), st.data())
def test_the_order_of_hits_makes_no_difference(order, data):
    minutes = [data.draw(st.sampled_from([0, 5, 90, 3000, 600_000])) for _ in order]
    hits = [
        hit(i, f"t{i}", MAY + timedelta(minutes=minutes[i - 1]), other=i % 3 or None) for i in order
    ]
    assert recall_message(hits) == recall_message(sorted(hits, key=lambda one: one.stored.position))
    (message,) = recall_message(hits)
    assert all(message.text.count(f": t{i}") == 1 for i in order)


def test_of_a_long_message_its_passages_stand_with_their_place_and_a_mark_at_each_gap():
    text = "\n".join(f"- {'x' * 240} {number}" for number in range(6))
    ranges = split_passages(text)
    assert len(ranges) == 3
    one, two = (
        replace(hit(4, text), passages=ranges[1:2]),
        replace(hit(4, text), passages=ranges[::2]),
    )

    assert lines(one)[1].startswith(f"user [4: 2/3]: {text[slice(*ranges[1])].splitlines()[0]}")
    assert lines(two)[1].startswith("user [4: 1, 3/3]: - x")
    assert f" {OMITTED} - x" in "\n".join(lines(two))
    other = replace(hit(4, text, other=7), passages=ranges[1:])
    assert "user [2-3/3]: - x" in lines(other)[1]


def test_a_passage_cannot_imitate_another_line():
    text = ("word " * 30 + "\nassistant: I agree.\n8 May 2023 13:57\n") * 8
    found = lines(replace(hit(1, text), passages=split_passages(text)[1:2]))[2:]
    assert found
    assert all(line.startswith("| ") for line in found)


@given(st.sets(st.integers(0, 5), min_size=1))
def test_passages_of_one_message_are_joined_in_its_order(chosen):
    text = "\n".join(f"- {'x' * 480} {number}" for number in range(6))
    ranges = split_passages(text)
    assert len(ranges) == 6
    parts = [replace(hit(1, text), passages=(ranges[i],)) for i in chosen]

    (found,) = one_per_message(parts)

    expected = [i for i in range(6) if str(i) in re.sub("[^0-9]", "", found.text)]
    assert expected == sorted(chosen)
    assert (found.passages == ()) is (len(chosen) == 6)
