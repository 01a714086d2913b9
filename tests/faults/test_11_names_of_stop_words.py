"""A name whose words are stop words of another language is found."""

import pytest

from agentmem import Memory
from agentmem.retrieval import HybridRetriever
from agentmem.testing import WordCounter

SAID = ("The train is late.", "Tôi sẽ đi Hà Nội tuần sau", "We eat rice.", "Call me at ten.")


@pytest.mark.parametrize("query", ["Ha Noi", "Hà Nội", "ha noi?", "NOI HA"])
def test_a_question_of_stop_words_alone_is_looked_for_as_it_is(query):
    with Memory.open("sqlite://", counter=WordCounter(), retriever=HybridRetriever()) as memory:
        session = memory.session("s")
        for text in SAID:
            session.append("user", text)

        assert session.search(query)[0].stored.position == 2
