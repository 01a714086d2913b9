import pytest

from agentmem.errors import TranscriptError
from agentmem.store.transcript.tool_calls import NO_RESULT
from agentmem.types import Inherit, Origin, Role
from tests.builders import call, result, say


def shape(messages):
    """Roles in short; an asterisk marks what the memory itself wrote."""
    return " ".join(
        ("*" if stored.origin is Origin.SYNTHETIC else "")
        + stored.message.role[0]
        + (stored.message.tool_call_id or "")
        + "".join(made.id for made in stored.message.tool_calls)
        for stored in messages
    )


@pytest.fixture
def fork(store, scope, main):
    def fork_main(at, *, inherit=Inherit.ALL, parent=main):
        return store.sessions.fork(scope, parent, name="t", inherit=inherit, at=at).id

    return fork_main


def test_results_may_come_in_any_order(append):
    append(call("1", "2"))

    stored = append(result("2"), result("1"), "thanks")

    assert shape(stored) == "t2 t1 u"


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_calls_are_closed_when_the_talk_goes_on(append, role):
    append(call("1", "2"), result("1"))

    stored = append(say(role, "well"))

    assert shape(stored) == f"*t2 {role[0]}"
    assert stored[0].message.text == NO_RESULT
    assert stored[0].message.name == "look"


def test_open_calls_are_remembered_between_appends(append):
    append(call("1"))
    append(call("2"))

    assert shape(append("hm")) == "*t2 u"


def test_a_result_that_nobody_asked_for_gets_a_call(append):
    append("hello")

    stored = append(result("9"))

    assert shape(stored) == "*a9 t9"
    (made,) = stored[0].message.tool_calls
    assert (made.name, made.arguments) == ("tool", "{}")
    assert shape(append("ok")) == "u"


def test_a_call_has_one_result(store, scope, main, append):
    append(call("1"), result("1"))

    with pytest.raises(TranscriptError, match="has its result"):
        append(result("1"))
    with pytest.raises(TranscriptError, match="has its result"):
        append(call("2"), result("2"), result("2"))

    assert store.sessions.branch(scope, main).head == 2


def test_a_result_that_comes_after_the_closing_is_kept_once(append):
    append(call("1"), "never mind")

    (late,) = append(result("1"))

    assert (late.origin, late.message.name) == (Origin.REPLACES, "look")
    with pytest.raises(TranscriptError, match="has its result"):
        append(result("1"))


def test_an_unknown_result_does_not_close_the_open_calls(append):
    append(call("1"))

    with pytest.raises(TranscriptError, match="'1'"):
        append(result("l"))

    assert shape(append(result("1"))) == "t1"


def test_an_id_may_be_used_again_for_a_new_call(append):
    append(call("1"), result("1"), call("1"))

    assert shape(append(result("1"), "ok")) == "t1 u"


def test_ids_are_not_trimmed_or_limited(append):
    long = "c" * 20_000
    append(call(" a", "a", long))

    assert shape(append(result(long), result("a"), result(" a"))) == f"t{long} ta t a"


def test_a_fork_inherits_the_open_calls_and_closes_them_alone(store, scope, main, append, fork):
    append("go", call("1", "2"), result("1"))
    task = fork(3)
    append(result("2"))

    assert shape(append("do this", branch=task)) == "*t2 u"
    assert shape(append("and you")) == "u"
    assert shape(store.messages.read(scope, task)) == "u a12 t1 *t2 u"
    assert shape(store.messages.read(scope, main)) == "u a12 t1 t2 u"


def test_a_fork_may_answer_an_inherited_call(append, fork):
    append(call("1"))
    task = fork(1)

    assert shape(append(result("1"), branch=task)) == "t1"
    assert shape(append(result("1"))) == "t1"


def test_a_fork_behind_the_head_sees_the_calls_open_there(append, fork):
    append(call("1"), result("1"), "ok")

    assert shape(append("hm", branch=fork(1))) == "*t1 u"
    assert shape(append("hm", branch=fork(2))) == "u"


def test_a_fork_into_the_ancestors_part_sees_the_calls_open_there(append, fork):
    append(call("1"), result("1"))
    task = fork(2)
    append("x", branch=task)

    assert shape(append("hm", branch=fork(1, parent=task))) == "*t1 u"


def test_an_answered_call_of_an_ancestor_cannot_be_answered_again(append, fork):
    append(call("1"), result("1"))

    with pytest.raises(TranscriptError):
        append(result("1"), branch=fork(2))


def test_a_call_made_after_the_fork_is_unknown_to_it(append, fork):
    append("hello")
    task = fork(1)
    append(call("1"))

    assert shape(append(result("1"), branch=task)) == "*a1 t1"


def test_a_fork_of_the_pins_alone_begins_without_calls(append, fork):
    append(call("1", "2"), result("1"))
    task = fork(2, inherit=Inherit.PINS)

    assert shape(append("hm", branch=task)) == "u"
    assert shape(append(result("1"), branch=task)) == "*a1 t1"
    nested = fork(1, parent=task)
    assert shape(append("hm", branch=nested)) == "u"


def test_no_message_of_another_role_answers(append):
    stored = append(call("1"), say("assistant", "thinking aloud"))

    assert [item.message.role for item in stored] == [Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
