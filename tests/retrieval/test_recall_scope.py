"""Who finds what, and what is gone for everybody."""

from agentmem.protocols import SearchScope
from agentmem.types import Origin, Scope, SessionId
from tests.builders import call, result, say
from tests.retrieval.asking import found
from tests.retrieval.retrieval_store import SCOPE, USER, ListRetrievalStore

SESSION = SearchScope(scope=SCOPE, session_id=SessionId(1))


def test_a_session_of_its_own_does_not_see_the_others(retrieval_store, recall):
    here, there = retrieval_store.branch(1), retrieval_store.branch(2)
    (mine,) = retrieval_store.append(here, "the hotel in Lisbon")
    (other,) = retrieval_store.append(there, "the hotel in Porto")

    assert found(recall, "hotel", search_scope=SESSION, visible={here: (1, 9)}) == [mine]
    assert set(found(recall, "hotel", visible={here: (1, 9)})) == {mine, other}


def test_nothing_of_another_user_is_ever_found(retrieval_store, recall):
    stranger = Scope(namespace="tests", user="u43")
    mine, theirs = retrieval_store.branch(1), retrieval_store.branch(2, scope=stranger)
    retrieval_store.append(mine, "the hotel in Lisbon")
    (secret,) = retrieval_store.append(theirs, "the hotel in Porto")

    assert secret not in found(recall, "hotel Porto", visible={mine: (1, 9), theirs: (1, 9)})
    assert found(
        recall,
        "hotel Porto",
        search_scope=SearchScope(scope=stranger),
        session=2,
        visible={theirs: (1, 9)},
    ) == [secret]


def test_a_subtask_sees_its_ancestors_up_to_the_forks_and_no_sibling(retrieval_store, recall):
    main = retrieval_store.branch(1)
    before, after = retrieval_store.append(main, "hotel one", "hotel two")
    task = retrieval_store.branch(1, parent=main, forked_at=1)
    sibling = retrieval_store.branch(1, parent=main, forked_at=1)
    (own,) = retrieval_store.append(task, "hotel three")
    (other,) = retrieval_store.append(sibling, "hotel four")

    seen = found(recall, "hotel", search_scope=SESSION, visible={main: (1, 1), task: (2, 2)})

    assert set(seen) == {before, own}
    assert {after, other}.isdisjoint(seen)


def test_what_the_window_shows_is_left_out(retrieval_store, recall):
    main = retrieval_store.branch()
    ids = retrieval_store.append(main, *(f"hotel number {n}" for n in range(6)))

    assert set(found(recall, "hotel", visible={main: (1, 4)})) == set(ids[:4])


def test_what_was_emptied_elsewhere_is_not_found_and_the_next_takes_its_place(
    retrieval_store, recall
):
    main = retrieval_store.branch()
    see_all = {main: (1, 99)}
    ids = retrieval_store.append(main, *(f"the hotel is number {n}" for n in range(10)))
    recall.wait(10)
    best = found(recall, "hotel", visible=see_all, limit=3)

    for one in best:
        retrieval_store.empty(one)

    again = found(recall, "hotel", visible=see_all, limit=3)
    assert len(again) == 3
    assert set(again) <= set(ids) - set(best)


def test_a_branch_that_was_deleted_elsewhere_is_not_found(retrieval_store, recall):
    main, other = retrieval_store.branch(1), retrieval_store.branch(2)
    retrieval_store.append(main, "hotel one")
    retrieval_store.append(other, "hotel two")
    assert len(found(recall, "hotel", visible={main: (1, 9)})) == 2

    retrieval_store.drop(other)

    assert recall.status(USER).num_messages == 1
    assert found(recall, "hotel", visible={main: (1, 9)}) == [1]


def test_what_was_forgotten_is_in_no_index(retrieval_store, recall):
    main = retrieval_store.branch()
    ids = retrieval_store.append(main, "hotel one", "hotel two")
    recall.wait(10)
    assert len(found(recall, "hotel", visible={main: (1, 9)})) == 2
    retrieval_store.empty(ids[0])

    recall.forget(SCOPE, ids[:1])

    index = recall._library.get(USER)
    assert index.message_table.row_of(ids[0]) is None
    assert index.num_embedded in (0, 1)
    assert found(recall, "hotel", visible={main: (1, 9)}) == ids[1:]


def test_another_database_in_the_place_of_this_one_gives_its_own_messages(retrieval_store, recall):
    """A backup was restored below a running process."""
    main = retrieval_store.branch()
    see_all = {main: (1, 99)}
    retrieval_store.append(main, "the hotel", "the museum", "the bicycle")
    recall.wait(10)
    assert found(recall, "hotel", visible=see_all)[0] == 1

    other = ListRetrievalStore()
    other.append(other.branch(), "a train", "the weather", "a hotel", "breakfast")
    retrieval_store.lines, retrieval_store.vectors = other.lines, other.vectors

    assert found(recall, "hotel", visible=see_all)[0] == 3
    assert found(recall, "train", visible=see_all)[0] == 1


def test_an_older_state_of_the_database_is_read_anew(retrieval_store, recall):
    main = retrieval_store.branch()
    retrieval_store.append(main, "the hotel", "the museum", "the bicycle")
    assert found(recall, "bicycle", visible={main: (1, 9)})[0] == 3

    retrieval_store.lines[main].messages.pop()

    assert 3 not in found(recall, "bicycle", visible={main: (1, 9)})
    retrieval_store.append(main, "a train")
    assert found(recall, "train", visible={main: (1, 9)})[0] == 4


def test_calls_results_and_synthetic_messages_without_words_are_passed_over(
    retrieval_store, recall
):
    main = retrieval_store.branch()
    retrieval_store.append(main, call("c1"), result("c1", "the hotel costs 92 euros"))
    retrieval_store.append(main, say("user", "hotel"), origin=Origin.SYNTHETIC)

    assert recall.wait(10)
    assert found(recall, "hotel", visible={main: (1, 9)}) == [2]
    assert recall.status(SESSION).num_messages == 1
