"""Embedders that are watched, or fail."""

from agentmem.testing import HashingEmbedder

FINGERPRINT = HashingEmbedder().fingerprint


class Watched(HashingEmbedder):
    """Keeps what it was given, and fails as the test says."""

    def __init__(self, fails_on=lambda _text: False, **options):
        super().__init__(**options)
        self.texts = []
        self.fails_on = fails_on

    def embed_passages(self, texts):
        self.texts += texts
        for text in texts:
            if self.fails_on(text):
                raise RuntimeError(f"cannot embed {text}")
        return super().embed_passages(texts)


def embedded(retrieval_store, fingerprint=FINGERPRINT):
    return sorted(message_id for name, message_id in retrieval_store.vectors if name == fingerprint)
