import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem.errors import (
    ConflictError,
    InvalidInputError,
    SessionNotFoundError,
)
from agentmem.types import (
    BranchState,
    GeneratedIds,
    ImagePart,
    Inherit,
    Message,
    Origin,
    ReasoningPart,
    Role,
    Scope,
    TextPart,
    ToolCall,
)
from tests.builders import call, result, say

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


def positions(messages):
    return [stored.position for stored in messages]


def test_messages_come_back_as_they_were_said(store, scope, main, append):
    every_part = Message(
        role=Role.ASSISTANT,
        parts=(
            ReasoningPart(text="hm"),
            TextPart(text='a "quoted" line\nand ünïcode 🙂'),
            ImagePart(url="https://example.org/a.png", alt="a hotel"),
        ),
        tool_calls=(ToolCall(id="c1", name="look", arguments='{"a": tru'),),
        name="agent",
        generated=GeneratedIds(fingerprint="m@1", token_ids=(0, 7, 4_294_967_295)),
    )

    stored = append("hello", every_part, result("c1"))

    assert store.messages.read(scope, main) == stored
    assert [message.message for message in stored] == [
        say("user", "hello"),
        every_part,
        result("c1"),
    ]
    assert positions(stored) == [1, 2, 3]
    assert stored[0].created_at.utcoffset().total_seconds() == 0


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS, alt=TEXTS)
def test_any_legal_text_comes_back_byte_for_byte(store, scope, append, text, alt):
    parts = (TextPart(text=text), ImagePart(url="u", alt=alt), ReasoningPart(text=text))
    calls = (ToolCall(id=text, name=text, arguments=text),)
    message = Message(role=Role.ASSISTANT, parts=parts, tool_calls=calls)

    (*_, stored) = append(message)

    (again,) = store.messages.read(scope, stored.branch_id, stored.position, stored.position)
    assert again == stored


def test_ten_megabytes_come_back_whole(store, scope, main, append):
    text = "ä" * 5_000_000

    append(text)

    assert store.messages.read(scope, main)[0].message.text == text


def test_a_range_is_read_with_both_ends(store, scope, main, append):
    append("a", "b", "c", "d")

    assert positions(store.messages.read(scope, main, 2, 3)) == [2, 3]
    assert positions(store.messages.read(scope, main, 3)) == [3, 4]
    assert positions(store.messages.read(scope, main, -5, 2**80)) == [1, 2, 3, 4]
    assert store.messages.read(scope, main, 5) == ()
    assert store.messages.read(scope, main, 3, 2) == ()


def test_the_head_counts_what_was_stored(store, scope, main, append):
    append("a", "b")

    assert store.sessions.branch(scope, main).head == 2
    assert store.sessions.get(scope, "trip").num_messages == 2


def test_an_append_is_all_or_nothing(store, scope, main, append):
    append(call("c1"), result("c1"))

    with pytest.raises(InvalidInputError):
        append("new", result("c1"))

    assert store.sessions.branch(scope, main).head == 2


def test_nothing_and_system_messages_are_refused(append):
    with pytest.raises(InvalidInputError, match="no message"):
        append()
    with pytest.raises(InvalidInputError, match="pin"):
        append(Message(role=Role.SYSTEM, parts=(TextPart(text="x"),)))


def test_a_token_id_of_more_than_32_bits_is_refused(append):
    generated = GeneratedIds(fingerprint="m", token_ids=(2**32,))

    with pytest.raises(InvalidInputError, match="32 bits"):
        append(say("assistant", "x", generated=generated))


def test_a_branch_that_has_ended_takes_no_more(store, scope, main, append):
    append("a")
    store.sessions.set_state(scope, main, expected=BranchState.OPEN, state=BranchState.ENDED)

    with pytest.raises(ConflictError, match="ended"):
        append("b")

    assert store.sessions.branch(scope, main).head == 1


def test_a_retry_with_the_same_key_gives_the_first_result(store, scope, main, append):
    first = append(call("c1"), "never mind", client_key="k1")
    append("later")

    again = append(call("c1"), "never mind", client_key="k1")

    assert again == first
    assert positions(again) == [1, 2, 3]
    assert again[1].origin is Origin.SYNTHETIC
    assert store.sessions.branch(scope, main).head == 4


def test_a_retry_after_the_end_of_the_branch_still_gives_the_first_result(
    store, scope, main, append
):
    first = append("a", client_key="k1")
    store.sessions.set_state(scope, main, expected=BranchState.OPEN, state=BranchState.ENDED)

    assert append("a", client_key="k1") == first


@pytest.mark.parametrize("other", ["b", "a "])
def test_a_key_is_not_taken_for_other_content(store, scope, main, append, other):
    append("a", client_key="k1")

    with pytest.raises(ConflictError, match="k1"):
        append(other, client_key="k1")
    with pytest.raises(ConflictError, match="k1"):
        append("a", client_key="k1", origin=Origin.PROMOTED)

    assert store.sessions.branch(scope, main).head == 1


def test_a_key_belongs_to_its_branch(store, scope, main, append):
    append("a", client_key="k1")
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=1)

    (own,) = append("b", branch=task.id, client_key="k1")

    assert own.position == 2


def test_a_view_is_the_ancestors_up_to_the_fork_and_then_the_own(store, scope, main, append):
    append("a", "b", "c")
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=2)
    append("x", "y", branch=task.id)
    inner = store.sessions.fork(scope, task.id, name="u", inherit=Inherit.PINS, at=3)
    append("z", branch=inner.id)
    append("d")

    view = store.messages.read(scope, inner.id)

    assert [stored.message.text for stored in view] == ["a", "b", "x", "z"]
    assert positions(view) == [1, 2, 3, 4]
    assert [stored.branch_id for stored in view] == [main, main, task.id, inner.id]
    assert positions(store.messages.read(scope, inner.id, 2, 3)) == [2, 3]
    assert positions(store.messages.read(scope, inner.id, 1, 1)) == [1]


def test_a_fork_before_the_parents_own_part_sees_only_the_ancestor(store, scope, main, append):
    append("a", "b", "c")
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=3)
    append("x", branch=task.id)
    early = store.sessions.fork(scope, task.id, name="u", inherit=Inherit.ALL, at=1)
    append("z", branch=early.id)

    texts = [stored.message.text for stored in store.messages.read(scope, early.id)]

    assert texts == ["a", "z"]


def test_promoted_messages_are_found_among_many(store, scope, main, append):
    append("a", "b")
    append(say("assistant", "fact"), origin=Origin.PROMOTED)
    append("c")
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.PINS, at=4)

    assert positions(store.messages.promoted(scope, task.id)) == [3]
    assert store.messages.promoted(scope, task.id, 1, 2) == ()


def test_messages_of_another_user_are_not_there(store, scope, main, append):
    append("secret")
    other = Scope(namespace=scope.namespace, user="u43")

    with pytest.raises(SessionNotFoundError):
        store.messages.read(other, main)
    with pytest.raises(SessionNotFoundError):
        store.messages.append(other, main, [say("user", "x")])


@pytest.mark.parametrize("branch_id", [0, -1, 10**6, 2**63, 2**200])
def test_an_id_that_no_branch_has_is_not_found(store, scope, branch_id):
    with pytest.raises(SessionNotFoundError):
        store.messages.read(scope, branch_id)


def test_a_damaged_row_is_read_as_a_stand_in_and_not_skipped(store, scope, main, append):
    append("a", "b")
    store.database.write(
        lambda connection: connection.exec_driver_sql("UPDATE message SET parts = '[' WHERE id = 1")
    )

    damaged, whole = store.messages.read(scope, main)
    assert (damaged.position, damaged.origin) == (1, Origin.DAMAGED)
    assert damaged.message.text == "[message 1 is damaged and cannot be read]"
    assert whole.message.text == "b"


def test_a_row_that_was_read_before_is_the_same_value_until_it_changes(store, scope, main):
    store.messages.append(scope, main, [say("user", "secret"), say("assistant", "x" * 9000)])
    first = store.messages.read(scope, main)

    again = store.messages.read(scope, main)
    store.deletion.message(scope, main, 1)
    after = store.messages.read(scope, main)

    assert again == first
    assert again[0] is first[0]
    assert again[1] is not first[1], "long texts are not kept in memory"
    assert "secret" not in repr(after)
