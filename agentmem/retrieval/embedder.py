"""The embedder on sentence-transformers. Importing this loads torch."""

from collections.abc import Sequence

from agentmem.retrieval.columns import Float32s

DEFAULT_EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"


class SentenceEmbedder:
    """Any model of sentence-transformers. Threads may share it; one embeds at a time."""

    @classmethod
    def load(
        cls, name: str = DEFAULT_EMBEDDER, *, device: str = "auto", batch_size: int = 32
    ) -> "SentenceEmbedder":
        """
        Load a model by its name or from a folder.

        Raises:
            ModelLoadError: there is no such model, or it cannot be read.
            ConfigError: there is no such device.
        """
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        raise NotImplementedError

    @property
    def dimension(self) -> int:
        raise NotImplementedError

    def embed_passages(self, texts: Sequence[str]) -> Float32s:
        raise NotImplementedError

    def embed_query(self, text: str) -> Float32s:
        raise NotImplementedError

    def split(self, text: str) -> Sequence[tuple[int, int]]:
        raise NotImplementedError
