from agentmem.context import group_turns, legal_fork, open_calls
from tests.builders import call, result, say, stored


def test_a_turn_is_a_user_message_and_all_that_answers_it():
    messages = stored(say("user", "a"), call("c1"), result("c1"), say("assistant", "b"))
    more = stored(say("user", "c"), start=5)

    turns = group_turns(messages + more)

    assert [(turn.first, turn.last) for turn in turns] == [(1, 4), (5, 5)]


def test_what_stands_before_the_first_user_message_is_a_turn_of_its_own():
    turns = group_turns(stored(say("assistant", "hello"), say("user", "a")))

    assert [(turn.first, turn.last) for turn in turns] == [(1, 1), (2, 2)]


def test_no_messages_are_no_turns():
    assert group_turns([]) == ()


def test_a_call_is_open_until_its_own_result_comes():
    messages = stored(say("user", "a"), call("c1", "c2"), result("c2"))

    assert open_calls(messages) == {"c1": 2}


def test_a_fork_goes_before_the_oldest_open_call():
    messages = stored(say("user", "a"), call("c1", "c2"), result("c2"))

    assert legal_fork(messages, head=3) == 1


def test_a_fork_goes_to_the_head_when_each_call_has_its_result():
    messages = stored(say("user", "a"), call("c1"), result("c1"))

    assert legal_fork(messages, head=3) == 3


def test_a_call_id_that_is_used_again_counts_from_its_last_call():
    messages = stored(say("user", "a"), call("c1"), result("c1"), call("c1"))

    assert legal_fork(messages, head=4) == 3
