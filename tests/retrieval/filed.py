"""A retrieval store with a folder beside it, and how it is searched."""

from tests.retrieval.asking import found
from tests.retrieval.embedders import FINGERPRINT
from tests.retrieval.retrieval_store import ListRetrievalStore

CODE_WORD = "the code word is xyzzy"


class FiledRetrievalStore(ListRetrievalStore):
    """Counts how many vectors were read from it."""

    num_read = 0

    def embeddings(self, fingerprint, message_ids):
        vectors = super().embeddings(fingerprint, message_ids)
        self.num_read += len(vectors)
        return vectors


def search(recall, text="hotel number 7"):
    return found(recall, text, visible={1: (1, 99)})


def vector_of(retrieval_store, message_id):
    (one,) = retrieval_store.vectors[FINGERPRINT, message_id]
    return one.vector
