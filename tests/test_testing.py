from itertools import pairwise

import numpy as np
import pytest

from agentmem.testing import HashingEmbedder
from tests.store.processes import finish, start

EMBED = """
from agentmem.testing import HashingEmbedder
print(HashingEmbedder().embed_query("the hotel in Lisbon").tobytes().hex())
"""


def test_texts_that_share_words_lie_close():
    embedder = HashingEmbedder()
    passages = embedder.embed_passages(["Ana likes the hotel in Lisbon", "Bo rides a bicycle"])

    close, far = passages @ embedder.embed_query("which hotel does Ana like in Lisbon?")

    assert close > far + 0.3


def test_every_text_has_a_vector_of_length_one():
    texts = ["", "...", "word", "\u4f60\u597d", "many " * 500, "\n\t "]

    vectors = HashingEmbedder(dimension=4).embed_passages(texts)

    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    assert vectors.dtype == np.float32


@pytest.mark.slow
def test_another_process_gives_the_same_vector():
    first, second = (finish(start(EMBED)) for _ in range(2))

    assert first == second


def test_another_name_is_another_embedder():
    one, other = HashingEmbedder(), HashingEmbedder(name="other")

    assert one.fingerprint != other.fingerprint
    assert (one.embed_query("hotel") != other.embed_query("hotel")).any()


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 12, 13, 25, 100])
def test_pieces_of_a_text_overlap_and_cover_all_of_it(length):
    pieces = HashingEmbedder(max_chars=10).split("x" * length)

    assert pieces[0][0] == 0
    assert pieces[-1][1] == length - 1
    assert all(last - first < 10 for first, last in pieces)
    assert all(start <= end for (_, end), (start, _) in pairwise(pieces))
    assert len(pieces) == 1 if length <= 10 else len(pieces) > 1
