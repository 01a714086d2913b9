"""How a question is ranked."""

from dataclasses import replace

from agentmem.retrieval.index.ranking_mode import (
    OF_LOOK_BACK,
    OF_NEXT_TURN,
    OF_PEOPLE,
    ranking_mode,
)
from tests.retrieval.asking import ask
from tests.retrieval.entries import entry, indexed


def test_people_with_names_are_ranked_as_such_whatever_is_asked():
    table, _ = indexed([entry(1, "Hello.", speaker="Anna"), entry(2, "Hi.", speaker="Ben")])
    assert ranking_mode(ask("Where is it?"), table) is OF_PEOPLE
    assert ranking_mode(ask("Book it."), table) is OF_PEOPLE


def test_a_log_of_an_assistant_tells_a_question_from_a_next_turn():
    table, _ = indexed([entry(1, "Hello."), entry(2, "How can I help you?", role="assistant")])
    assert ranking_mode(ask("Where is it?"), table) is OF_LOOK_BACK
    assert ranking_mode(ask("Book it."), table) is OF_NEXT_TURN


def test_a_text_written_to_search_with_looks_back_in_any_form():
    table, _ = indexed([entry(1, "Hello."), entry(2, "How can I help you?", role="assistant")])
    assert ranking_mode(replace(ask("the hotel"), is_turn=False), table) is OF_LOOK_BACK


def test_words_of_a_next_turn_are_looked_for_in_a_wide_neighbourhood():
    entries = [entry(n, "museum" if n == 1 else "and so on", minute=n) for n in range(1, 10)]
    _, lexical = indexed(entries)
    assert OF_LOOK_BACK.scores(lexical, "museum")[8] == 0
    assert OF_NEXT_TURN.scores(lexical, "museum")[8] > 0
