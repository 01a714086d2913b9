"""Which texts are embedded for a message."""

from itertools import pairwise

from agentmem.retrieval.dense.chunks import chunks_of
from agentmem.testing import HashingEmbedder
from tests.retrieval.entries import entry


class Short(HashingEmbedder):
    def split(self, text):
        return [(first, min(first + 9, len(text) - 1)) for first in range(0, len(text), 5)]


def test_a_short_text_is_one_span_that_says_who_speaks():
    (span,) = chunks_of(entry(1, "hello there", speaker="Anna"), HashingEmbedder())
    assert (span.first, span.last, span.text) == (0, 10, "Anna: hello there")


def test_a_long_text_is_several_that_overlap():
    text = "abcdefghijklmnopqrstuvwxyz"
    spans = chunks_of(entry(1, text), Short())
    assert [span.text for span in spans][:2] == ["user: abcdefghij", "user: fghijklmno"]
    assert spans[0].first == 0
    assert spans[-1].last == len(text) - 1
    assert all(after.first <= before.last + 1 for before, after in pairwise(spans))
