"""What is a row, and who may see which."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.retrieval.catalog import Catalog, entry_of, is_question
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


def seen(catalog, asked):
    return catalog.message_ids[catalog.mask(asked)].tolist()


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
        found = entry_of(stored(message)[0], HERE)
        assert found.text == "Look!\n[image: a grey cat]"
        assert (found.speaker, found.session_id, found.position) == ("Anna", HERE, 1)

    def test_a_message_without_a_name_is_its_role(self):
        (one,) = stored(say("tool", "92 EUR", tool_call_id="c1"))
        assert entry_of(one, HERE).speaker == "tool"

    def test_a_call_alone_says_nothing(self):
        assert entry_of(stored(call("c1"))[0], HERE) is None

    def test_an_image_without_a_description_says_nothing(self):
        message = Message(role=Role.USER, parts=(ImagePart(url="https://a/c.png"),))
        assert entry_of(stored(message)[0], HERE) is None

    @pytest.mark.parametrize("origin", [Origin.SYNTHETIC, Origin.DELETED])
    def test_nobodys_words_are_no_entry(self, origin):
        (one,) = stored(say("user", "hello"))
        assert entry_of(replace(one, origin=origin), HERE) is None


class TestMask:
    def test_only_the_visible_part_of_a_branch(self):
        catalog = Catalog()
        catalog.add([entry(i, "a") for i in range(1, 6)])
        assert seen(catalog, query(visible={BranchId(1): (2, 4)})) == [2, 3, 4]
        assert seen(catalog, query(visible={})) == []

    def test_never_a_branch_beside(self):
        catalog = Catalog()
        catalog.add([entry(1, "a"), entry(2, "b", branch=2), entry(3, "c", branch=3)])
        visible = {BranchId(1): (1, 1), BranchId(2): (2, 2)}
        assert seen(catalog, query(visible=visible)) == [1, 2]

    def test_other_sessions_only_where_the_domain_has_them(self):
        catalog = Catalog()
        catalog.add([entry(1, "a"), entry(2, "b", branch=2, session=2)])
        assert seen(catalog, query()) == [1]
        assert seen(catalog, query(everywhere=True)) == [1, 2]

    def test_of_another_session_what_the_query_names(self):
        catalog = Catalog()
        catalog.add([entry(i, "b", branch=2, session=2) for i in (1, 2, 3)])
        visible = {BranchId(2): (2, 2)}
        assert seen(catalog, query(visible=visible, everywhere=True)) == [2]

    def test_nobody_sees_what_was_removed(self):
        catalog = Catalog()
        catalog.add([entry(i, "a") for i in (1, 2, 3)])
        assert catalog.remove([MessageId(2), MessageId(9)]) == [1]
        assert seen(catalog, query()) == [1, 3]
        assert catalog.row_of(MessageId(2)) is None
        assert catalog.row_of(MessageId(3)) == 2
        assert (len(catalog), catalog.num_alive) == (3, 2)

    def test_nothing_to_remove(self):
        catalog = Catalog()
        catalog.add([entry(1, "a")])
        assert catalog.remove([]) == []
        assert catalog.num_alive == 1


@given(st.lists(st.integers(0, 40), max_size=8))
def test_rows_go_on_where_the_last_ones_ended(portions):
    catalog, number = Catalog(), 0
    for size in portions:
        rows = catalog.add([entry(number + i + 1, "a") for i in range(size)])
        assert rows == range(number, number + size)
        number += size
    assert catalog.message_ids.tolist() == list(range(1, number + 1))
    assert catalog.alive.all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Why?", True), ("为什么？ ", True), ("Why? Because.", False), ("No", False), ("", False)],  # noqa: RUF001
)
def test_a_question_ends_with_its_mark(text, expected):
    assert is_question(text) is expected
