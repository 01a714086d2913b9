"""How recalled messages are written."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from agentmem.context.recall import HEADING, recall_message
from agentmem.protocols import Hit
from agentmem.types import BranchId, ImagePart, Message, Role, TextPart
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
