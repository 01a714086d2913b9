"""What is a row, and who may see which."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.retrieval.rows.message_table import MessageTable, indexed_message, is_question
from agentmem.types import (
    BranchId,
    ImagePart,
    Message,
    MessageId,
    Origin,
    ReasoningPart,
    Role,
    SessionId,
    TextPart,
)
from tests.builders import call, say, stored
from tests.retrieval.entries import entry, query

HERE = SessionId(1)


def seen(message_table, asked):
    return message_table.message_ids[message_table.mask(asked)].tolist()


class TestEntryOf:
    def test_has_text_and_what_images_show(self):
        message = Message(
            role=Role.USER,
            name="Anna",
            parts=(
                ReasoningPart(text="hm"),
                TextPart(text="Look!"),
                ImagePart(url="https://a/b.png", alt="a grey cat"),
                ImagePart(url="https://a/c.png"),
            ),
        )
        found = indexed_message(stored(message)[0], HERE)
        assert found.text == "Look!\n[image: a grey cat]"
        assert (found.speaker, found.session_id, found.position) == ("Anna", HERE, 1)

    def test_a_message_without_a_name_is_its_role(self):
        (one,) = stored(say("tool", "92 EUR", tool_call_id="c1"))
        assert indexed_message(one, HERE).speaker == "tool"

    def test_a_call_alone_says_nothing(self):
        assert indexed_message(stored(call("c1"))[0], HERE) is None

    def test_an_image_without_a_description_says_nothing(self):
        message = Message(role=Role.USER, parts=(ImagePart(url="https://a/c.png"),))
        assert indexed_message(stored(message)[0], HERE) is None

    @pytest.mark.parametrize("origin", [Origin.SYNTHETIC, Origin.DELETED])
    def test_nobodys_words_are_no_entry(self, origin):
        (one,) = stored(say("user", "hello"))
        assert indexed_message(replace(one, origin=origin), HERE) is None


class TestMask:
    def test_only_the_visible_part_of_a_branch(self):
        message_table = MessageTable()
        message_table.add([entry(i, "a") for i in range(1, 6)])
        assert seen(message_table, query(visible={BranchId(1): (2, 4)})) == [2, 3, 4]
        assert seen(message_table, query(visible={})) == []

    def test_never_a_branch_beside(self):
        message_table = MessageTable()
        message_table.add([entry(1, "a"), entry(2, "b", branch=2), entry(3, "c", branch=3)])
        visible = {BranchId(1): (1, 1), BranchId(2): (2, 2)}
        assert seen(message_table, query(visible=visible)) == [1, 2]

    def test_other_sessions_only_where_the_domain_has_them(self):
        message_table = MessageTable()
        message_table.add([entry(1, "a"), entry(2, "b", branch=2, session=2)])
        assert seen(message_table, query()) == [1]
        assert seen(message_table, query(everywhere=True)) == [1, 2]

    def test_of_another_session_what_the_query_names(self):
        message_table = MessageTable()
        message_table.add([entry(i, "b", branch=2, session=2) for i in (1, 2, 3)])
        visible = {BranchId(2): (2, 2)}
        assert seen(message_table, query(visible=visible, everywhere=True)) == [2]

    def test_nobody_sees_what_was_removed(self):
        message_table = MessageTable()
        message_table.add([entry(i, "a") for i in (1, 2, 3)])
        assert message_table.remove([MessageId(2), MessageId(9)]) == [1]
        assert seen(message_table, query()) == [1, 3]
        assert message_table.row_of(MessageId(2)) is None
        assert message_table.row_of(MessageId(3)) == 2
        assert (len(message_table), message_table.num_alive) == (3, 2)

    def test_nothing_to_remove(self):
        message_table = MessageTable()
        message_table.add([entry(1, "a")])
        assert message_table.remove([]) == []
        assert message_table.num_alive == 1


@given(st.lists(st.integers(0, 40), max_size=8))
def test_rows_go_on_where_the_last_ones_ended(portions):
    message_table, number = MessageTable(), 0
    for size in portions:
        rows = message_table.add([entry(number + i + 1, "a") for i in range(size)])
        assert rows == range(number, number + size)
        number += size
    assert message_table.message_ids.tolist() == list(range(1, number + 1))
    assert message_table.alive.all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Why?", True), ("为什么？ ", True), ("Why? Because.", False), ("No", False), ("", False)],  # noqa: RUF001
)
def test_a_question_ends_with_its_mark(text, expected):
    assert is_question(text) is expected
