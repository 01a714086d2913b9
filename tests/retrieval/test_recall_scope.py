"""Who finds what, and what is gone for everybody."""

from agentmem.protocols import Domain
from agentmem.types import Origin, Scope, SessionId
from tests.builders import call, result, say
from tests.retrieval.archive import SCOPE, USER, ListArchive
from tests.retrieval.asking import found

SESSION = Domain(scope=SCOPE, session_id=SessionId(1))


def test_a_session_of_its_own_does_not_see_the_others(archive, recall):
    here, there = archive.branch(1), archive.branch(2)
    (mine,) = archive.append(here, "the hotel in Lisbon")
    (other,) = archive.append(there, "the hotel in Porto")

    assert found(recall, "hotel", domain=SESSION, visible={here: (1, 9)}) == [mine]
    assert set(found(recall, "hotel", visible={here: (1, 9)})) == {mine, other}


def test_nothing_of_another_user_is_ever_found(archive, recall):
    stranger = Scope(namespace="tests", user="u43")
    mine, theirs = archive.branch(1), archive.branch(2, scope=stranger)
    archive.append(mine, "the hotel in Lisbon")
    (secret,) = archive.append(theirs, "the hotel in Porto")

    assert secret not in found(recall, "hotel Porto", visible={mine: (1, 9), theirs: (1, 9)})
    assert found(
        recall, "hotel Porto", domain=Domain(scope=stranger), session=2, visible={theirs: (1, 9)}
    ) == [secret]


def test_a_subtask_sees_its_ancestors_up_to_the_forks_and_no_sibling(archive, recall):
    main = archive.branch(1)
    before, after = archive.append(main, "hotel one", "hotel two")
    task = archive.branch(1, parent=main, forked_at=1)
    sibling = archive.branch(1, parent=main, forked_at=1)
    (own,) = archive.append(task, "hotel three")
    (other,) = archive.append(sibling, "hotel four")

    seen = found(recall, "hotel", domain=SESSION, visible={main: (1, 1), task: (2, 2)})

    assert set(seen) == {before, own}
    assert {after, other}.isdisjoint(seen)


def test_what_the_window_shows_is_left_out(archive, recall):
    main = archive.branch()
    ids = archive.append(main, *(f"hotel number {n}" for n in range(6)))

    assert set(found(recall, "hotel", visible={main: (1, 4)})) == set(ids[:4])


def test_what_was_emptied_elsewhere_is_not_found_and_the_next_takes_its_place(archive, recall):
    main = archive.branch()
    see_all = {main: (1, 99)}
    ids = archive.append(main, *(f"the hotel is number {n}" for n in range(10)))
    recall.wait(10)
    best = found(recall, "hotel", visible=see_all, limit=3)

    for one in best:
        archive.empty(one)

    again = found(recall, "hotel", visible=see_all, limit=3)
    assert len(again) == 3
    assert set(again) <= set(ids) - set(best)


def test_a_branch_that_was_deleted_elsewhere_is_not_found(archive, recall):
    main, other = archive.branch(1), archive.branch(2)
    archive.append(main, "hotel one")
    archive.append(other, "hotel two")
    assert len(found(recall, "hotel", visible={main: (1, 9)})) == 2

    archive.drop(other)

    assert recall.status(USER).num_messages == 1
    assert found(recall, "hotel", visible={main: (1, 9)}) == [1]


def test_what_was_forgotten_is_in_no_index(archive, recall):
    main = archive.branch()
    ids = archive.append(main, "hotel one", "hotel two")
    recall.wait(10)
    assert len(found(recall, "hotel", visible={main: (1, 9)})) == 2
    archive.empty(ids[0])

    recall.forget(SCOPE, ids[:1])

    index = recall._library.get(USER)
    assert index.message_table.row_of(ids[0]) is None
    assert index.num_embedded in (0, 1)
    assert found(recall, "hotel", visible={main: (1, 9)}) == ids[1:]


def test_another_database_in_the_place_of_this_one_gives_its_own_messages(archive, recall):
    """A backup was restored below a running process."""
    main = archive.branch()
    see_all = {main: (1, 99)}
    archive.append(main, "the hotel", "the museum", "the bicycle")
    recall.wait(10)
    assert found(recall, "hotel", visible=see_all)[0] == 1

    other = ListArchive()
    other.append(other.branch(), "a train", "the weather", "a hotel", "breakfast")
    archive.lines, archive.vectors = other.lines, other.vectors

    assert found(recall, "hotel", visible=see_all)[0] == 3
    assert found(recall, "train", visible=see_all)[0] == 1


def test_an_older_state_of_the_database_is_read_anew(archive, recall):
    main = archive.branch()
    archive.append(main, "the hotel", "the museum", "the bicycle")
    assert found(recall, "bicycle", visible={main: (1, 9)})[0] == 3

    archive.lines[main].messages.pop()

    assert 3 not in found(recall, "bicycle", visible={main: (1, 9)})
    archive.append(main, "a train")
    assert found(recall, "train", visible={main: (1, 9)})[0] == 4


def test_calls_results_and_synthetic_messages_without_words_are_passed_over(archive, recall):
    main = archive.branch()
    archive.append(main, call("c1"), result("c1", "the hotel costs 92 euros"))
    archive.append(main, say("user", "hotel"), origin=Origin.SYNTHETIC)

    assert recall.wait(10)
    assert found(recall, "hotel", visible={main: (1, 9)}) == [2]
    assert recall.status(SESSION).num_messages == 1
