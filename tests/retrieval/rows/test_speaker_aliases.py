"""Who is called what."""

from hypothesis import given
from hypothesis import strategies as st

from agentmem.retrieval.rows.speaker_aliases import SpeakerAliases
from agentmem.types import Role


def heard(*lines):
    names = SpeakerAliases()
    for row, (role, text) in enumerate(lines):
        names.add(row, Role(role), role, text)
    return names


THANKS = [("assistant", f"Thanks, Anna! That was number {i}.") for i in range(3)]


def test_whoever_has_a_name_is_found_by_it():
    names = SpeakerAliases()
    names.add(0, Role.USER, "Anna Smith", "hi")
    assert names.found_in("What did Anna say?") == {"Anna": 0}
    assert names.found_in("What did Anna Smith say?") == {"Anna Smith": 0}
    assert names.found_in("what did anna say") == {"anna": 0}
    assert names.found_in("What did Annabel say?") == {}


def test_a_name_that_is_a_word_is_not_found_in_lower_case():
    names = SpeakerAliases()
    names.add(0, Role.USER, "Will", "hi")
    assert names.found_in("what will it cost") == {}
    assert names.found_in("What did Will pay?") == {"Will": 0}


def test_names_in_scripts_without_spaces():
    names = SpeakerAliases()
    names.add(0, Role.USER, "小明", "你好")
    assert names.found_in("小明养了什么") == {"小明": 0}


def test_a_role_is_no_name():
    assert heard(("user", "hi"), ("assistant", "hello")).found_in("What did the user say?") == {}


def test_whom_one_side_addresses_is_the_other_side():
    names = heard(("user", "hi"), *THANKS)
    assert names.found_in("Where did Anna go?") == {"Anna": names.numbers["user"]}


def test_a_name_that_both_sides_use_is_of_a_third_one():
    names = heard(*THANKS, *[("user", "Hey Anna! There you are.")] * 3)
    assert names.found_in("Where did Anna go?") == {}


def test_a_name_used_once_or_twice_tells_nothing():
    assert heard(("user", "hi"), *THANKS[:2]).found_in("Where did Anna go?") == {}


def test_a_name_that_is_talked_about_tells_nothing():
    names = heard(("assistant", "hi"), *[("user", "I met Anna today and we talked")] * 5)
    assert names.found_in("Where did Anna go?") == {}


def test_among_three_nobody_can_be_told():
    names = heard(("user", "hi"), *THANKS)
    names.add(9, Role.USER, "Bert", "hi")
    assert names.found_in("Where did Anna go?") == {}


def test_what_was_learned_goes_with_the_rows():
    names = heard(("user", "hi"), *THANKS)
    names.remove([2])
    assert names.found_in("Where did Anna go?") == {}


@given(
    st.lists(st.sampled_from(["Anna, hi!", "Hey Bo.", "Thanks, Cy!", "x"]), max_size=12), st.data()
)
def test_forgetting_is_as_if_never_heard(texts, data):
    names = heard(*[("user" if i % 3 else "assistant", text) for i, text in enumerate(texts)])
    gone = data.draw(st.sets(st.sampled_from(range(len(texts))))) if texts else set()
    names.remove(sorted(gone))
    left = SpeakerAliases()
    for row, text in enumerate(texts):
        role = "user" if row % 3 else "assistant"
        if row in gone:
            left._numbers.setdefault(role, len(left._numbers))
        else:
            left.add(row, Role(role), role, text)
    asked = "Anna Bo Cy"
    assert names.found_in(asked) == left.found_in(asked)
