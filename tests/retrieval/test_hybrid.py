"""What is found, for whom, and what is told, over an archive in plain Python."""

from dataclasses import replace

import pytest

from agentmem.errors import RetrieverClosedError
from agentmem.protocols import Domain, Query, Recall, Retriever
from agentmem.retrieval import HybridRetriever
from agentmem.testing import HashingEmbedder
from agentmem.types import Origin, Scope, SessionId
from tests.builders import call, result, say
from tests.retrieval.archive import SCOPE, USER, ListArchive
from tests.retrieval.embedders import Watched, embedded

SESSION = Domain(scope=SCOPE, session_id=SessionId(1))


@pytest.fixture
def open_recall(archive):
    opened = []

    def make(embedder=None, **options):
        opened.append(HybridRetriever(embedder, **options).over(archive))
        return opened[-1]

    yield make
    for recall in opened:
        recall.close()


@pytest.fixture(params=["words", "hybrid"])
def recall(request, open_recall):
    return open_recall(HashingEmbedder() if request.param == "hybrid" else None)


def ask(text, *, domain=USER, session=1, visible=None, limit=10):
    return Query(
        text=text,
        domain=domain,
        session_id=SessionId(session),
        visible=visible or {},
        limit=limit,
    )


def found(recall, text, **options):
    return [hit.stored.id for hit in recall.search(ask(text, **options))]


def test_it_is_what_the_protocols_ask_for(open_recall):
    retriever: Retriever = HybridRetriever()
    recall: Recall = open_recall()

    assert retriever
    assert recall.wait()


def test_what_was_said_is_found_at_once(archive, recall):
    branch = archive.branch()
    see_all = {branch: (1, 99)}
    archive.append(branch, "my bicycle is red", "the weather is fine")
    (hotel,) = archive.append(branch, "the hotel in Lisbon costs 92 euros")
    assert found(recall, "hotel Lisbon", visible=see_all)[0] == hotel

    (later,) = archive.append(branch, "the museum opens at nine")
    assert found(recall, "when does the museum open", visible=see_all)[0] == later


def test_hits_tell_score_ranks_and_place(archive, open_recall):
    here, there = archive.branch(1), archive.branch(2)
    archive.append(here, "the hotel in Lisbon", "something else")
    archive.append(there, "a hotel in Porto", "and more")
    recall = open_recall(HashingEmbedder())
    assert recall.wait(10)

    hits = recall.search(ask("hotel Lisbon", visible={here: (1, 9)}))

    assert [hit.stored.message.text for hit in hits[:2]] == [
        "the hotel in Lisbon",
        "a hotel in Porto",
    ]
    assert [hit.is_local for hit in hits[:2]] == [True, False]
    assert hits[0].ranks == {"lexical": 1, "dense": 1}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


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


def test_no_more_is_found_than_was_wanted(archive, recall):
    main = archive.branch()
    archive.append(main, *(f"hotel number {n}" for n in range(6)))

    assert len(found(recall, "hotel", visible={main: (1, 9)}, limit=3)) == 3
    assert found(recall, "hotel", visible={main: (1, 9)}, limit=0) == []
    assert found(recall, " \n", visible={main: (1, 9)}) == []


def test_the_archive_may_be_empty(recall):
    assert found(recall, "hotel") == []


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

    assert found(recall, "hotel", visible={main: (1, 9)}) == [1]


def test_what_was_forgotten_is_in_no_index(archive, recall):
    main = archive.branch()
    ids = archive.append(main, "hotel one", "hotel two")
    recall.wait(10)
    assert len(found(recall, "hotel", visible={main: (1, 9)})) == 2
    archive.empty(ids[0])

    recall.forget(SCOPE, ids[:1])

    index = recall._library.get(USER)
    assert index.catalog.row_of(ids[0]) is None
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


def test_equal_scores_are_in_the_order_of_the_messages(archive, open_recall):
    main = archive.branch()
    archive.append(main, *(["the hotel"] * 20))
    recall = open_recall(HashingEmbedder())
    assert recall.wait(10)
    first = found(recall, "hotel", visible={main: (1, 99)}, limit=20)

    again = found(open_recall(HashingEmbedder()), "hotel", visible={main: (1, 99)}, limit=20)

    assert first == again


def test_calls_results_and_synthetic_messages_without_words_are_passed_over(archive, recall):
    main = archive.branch()
    archive.append(main, call("c1"), result("c1", "the hotel costs 92 euros"))
    archive.append(main, say("user", "hotel"), origin=Origin.SYNTHETIC)

    assert recall.wait(10)
    assert found(recall, "hotel", visible={main: (1, 9)}) == [2]
    assert recall.status(SESSION).num_messages == 1


def test_an_error_of_the_embedder_leaves_the_words(archive, open_recall):
    main = archive.branch()
    archive.append(main, "the hotel in Lisbon", "the museum")
    embedder = Watched(fails_on=lambda text: "hotel?" in text)
    recall = open_recall(embedder)
    assert recall.wait(10)

    hits = recall.search(ask("which hotel?", visible={main: (1, 9)}))

    assert hits[0].stored.id == 1
    assert "dense" not in hits[0].ranks
    assert "cannot embed which hotel?" in recall.status(USER).lexical_because
    assert "dense" in recall.search(ask("the hotel", visible={main: (1, 9)}))[0].ranks
    assert recall.status(USER).lexical_because is None


def test_status_tells_how_far_it_is(archive, open_recall):
    main = archive.branch()
    archive.append(main, "one hotel", "two hotels", call("c1"))
    by_words = open_recall().status(USER)
    recall = open_recall(HashingEmbedder())
    before = recall.status(USER)
    assert recall.wait(10)

    after = recall.status(USER)

    assert (by_words.num_messages, by_words.num_pending) == (2, 0)
    assert by_words.lexical_because == "there is no embedder"
    assert (before.num_embedded, before.num_pending) == (0, 2)
    assert before.lexical_because == "none of 2 messages is embedded yet"
    assert (after.num_embedded, after.num_pending, after.lexical_because) == (2, 0, None)
    assert after == replace(after, kind="flat", last_error=None, file_bytes=None, generation=None)


def test_another_embedder_finds_by_words_until_it_has_embedded(archive, open_recall):
    main = archive.branch()
    see_all = {main: (1, 9)}
    archive.append(main, "the hotel in Lisbon", "the museum")
    assert open_recall(HashingEmbedder()).wait(10)
    other = HashingEmbedder(name="other")
    recall = open_recall(other)

    hits = recall.search(ask("hotel", visible=see_all))
    assert hits[0].stored.id == 1
    assert "dense" not in hits[0].ranks

    assert recall.wait(10)
    assert "dense" in recall.search(ask("hotel", visible=see_all))[0].ranks
    assert embedded(archive, other.fingerprint) == [1, 2]


def test_a_search_has_what_lacks_a_vector_embedded(archive, open_recall):
    """Another process, without an embedder, stored it."""
    main = archive.branch()
    recall = open_recall(HashingEmbedder())
    archive.append(main, "the hotel")

    found(recall, "hotel", visible={main: (1, 9)})

    with recall._worker._changed:
        recall._worker._changed.wait_for(lambda: embedded(archive) == [1], 10)
    assert embedded(archive) == [1]


def test_a_closed_one_refuses_to_search(archive, recall):
    archive.append(archive.branch(), "the hotel")
    recall.close()
    recall.close()

    recall.added()
    recall.forget(SCOPE, [1])
    for asking in (lambda: recall.search(ask("hotel")), lambda: recall.status(USER)):
        with pytest.raises(RetrieverClosedError):
            asking()


def test_rebuilding_embeds_what_is_pending_and_tells_how_far_it_is(archive, open_recall):
    main = archive.branch()
    archive.append(main, *(f"hotel {n}" for n in range(70)))
    recall = open_recall(HashingEmbedder())
    told = []

    status = recall.rebuild(USER, lambda *step: told.append(step))

    assert (status.num_messages, status.num_embedded, status.num_pending) == (70, 70, 0)
    assert told == [
        ("read", 70, 70),
        ("embedded", 32, 70),
        ("embedded", 64, 70),
        ("embedded", 70, 70),
    ]


def test_rebuilding_by_words_alone_reads_everything(archive, open_recall):
    archive.append(archive.branch(), "hotel")

    assert open_recall().rebuild(USER).num_messages == 1
