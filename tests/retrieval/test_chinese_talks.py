"""Short Chinese turns are found by questions that say it in other words."""

from chinese_talks import chinese_talks
from searching import Searcher


def test_most_of_fifty_chinese_questions_find_their_turn_among_the_best_ten():
    found = []
    for talk in chinese_talks():
        searcher = Searcher(talk.messages, None)
        for question in talk.questions:
            best = [hit.stored.position for hit in searcher.search(question, "lexical")[:10]]
            found.append(not question.evidence.isdisjoint(best))

    assert len(found) == 50
    assert sum(found) >= 46
