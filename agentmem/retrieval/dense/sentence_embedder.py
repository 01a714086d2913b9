"""An embedder with sentence-transformers. Importing this loads torch."""

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from agentmem.errors import ModelLoadError
from agentmem.machine.device import choose_device, compute_in_one_thread_in_forks
from agentmem.machine.forks import hold_in_fork
from agentmem.machine.quiet import quiet_libraries
from agentmem.retrieval.dense.find_embedder import DEFAULT_EMBEDDER, digest_of, find_embedder
from agentmem.retrieval.dense.priority_lock import PriorityLock
from agentmem.retrieval.rows.growable_array import Float32s
from agentmem.types.short_repr import short_repr

__all__ = ["DEFAULT_EMBEDDER", "SentenceEmbedder"]

_VERSION = "1"
"""Part of the fingerprint: raise it when the vectors of the same texts change."""

_MAX_TOKENS = 512
_MIN_TOKENS = 16
_SPEAKER_TOKENS = 16
"""Tokens reserved for the speaker's name before each chunk."""

_OVERLAP = 4
"""Overlap of chunks, as a divisor of their length."""

_CHINESE = "我家的猫很喜欢在窗边睡觉，我们都叫它豆包。"  # noqa: RUF001 - as it is written
"""My cat likes to sleep by the window, and we call it Doubao: a probe of the tokenizer."""

_BATCH = 16
"""Texts per batch; a query waits for one batch at most."""


class SentenceEmbedder:
    """
    A sentence-transformers model.

    Thread-safe: one caller embeds at a time, and queries precede waiting passages.
    """

    def __init__(self, model: SentenceTransformer, digest: str) -> None:
        self._model: Any = model
        self._lock = PriorityLock()
        self._held = ExitStack()
        hold_in_fork(self)
        compute_in_one_thread_in_forks()
        self._dimension = int(model.get_embedding_dimension() or 0)
        tokenizer = self._model.tokenizer
        self._reads_unspaced = _reads(tokenizer, _CHINESE)
        limit = min(int(self._model.max_seq_length or _MAX_TOKENS), _MAX_TOKENS)
        prompts = {name: text for name, text in sorted(self._model.prompts.items()) if text}
        longest = max((len(tokenizer(text)["input_ids"]) for text in prompts.values()), default=2)
        self._max_tokens = max(_MIN_TOKENS, limit - longest - _SPEAKER_TOKENS)
        facts = (_VERSION, digest, self._dimension, limit, prompts, "normalised")
        named = hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
        self._fingerprint = f"sentence-transformers:{named}:{self._dimension}"

    def __repr__(self) -> str:
        return short_repr("SentenceEmbedder", self.fingerprint)

    @classmethod
    def load(
        cls,
        name: str = DEFAULT_EMBEDDER,
        *,
        device: str = "auto",
        prompts: dict[str, str] | None = None,
    ) -> "SentenceEmbedder":
        """
        Load a model by name or from a folder.

        Args:
            name: a name on the hub, or a folder.
            device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``; auto is CUDA where available.
            prompts: prefixes of a ``query`` and a ``document``, for a model that was trained with
                such prefixes but does not configure them.

        Raises:
            ModelLoadError: the model does not exist or cannot be read.
            ConfigError: the device does not exist.
        """
        chosen = choose_device(device)
        folder = find_embedder(name)
        try:
            with quiet_libraries():
                model = SentenceTransformer(
                    str(folder),
                    device=str(chosen),
                    prompts=prompts,
                    local_files_only=True,
                    model_kwargs={"use_safetensors": True},
                )
        except Exception as error:  # readers of corrupt files may raise anything
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise ModelLoadError(
                f"no embedding model can be loaded from {folder}: {lines[0]}"
            ) from error
        return cls(model.eval(), digest_of(Path(folder)))

    @property
    def fingerprint(self) -> str:
        """Return a content hash of weights, tokenizer, settings, prompts and dimension."""
        return self._fingerprint

    @property
    def dimension(self) -> int:
        return self._dimension

    @property
    def reads_unspaced(self) -> bool:
        """Whether its tokenizer supports Chinese, as those of multilingual models do."""
        return self._reads_unspaced

    def embed_passages(self, texts: Sequence[str]) -> Float32s:
        """Return the unit vectors of *texts*: (texts, dimension)."""
        vectors = np.zeros((len(texts), self._dimension), np.float32)
        # Sorting by length minimizes padding.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            with self._lock.acquire():
                vectors[batch] = self._encode([texts[i] for i in batch], is_query=False)
        return vectors

    def embed_query(self, text: str) -> Float32s:
        """Return the unit vector of a query: (dimension,)."""
        with self._lock.acquire(is_urgent=True):
            vector: Float32s = self._encode([text], is_query=True)[0]
        return vector

    def split(self, text: str) -> Sequence[tuple[int, int]]:
        """
        Split *text* into chunks within the model's maximum length.

        Chunks are first and last character, both included; a quarter of each overlaps with the
        next one. A tokenizer without token offsets is assumed to need a token per character.
        """
        whole = [(0, len(text) - 1)]
        if len(text.encode()) <= self._max_tokens:
            return whole
        tokenizer = self._model.tokenizer
        if tokenizer.is_fast:
            with self._lock.acquire():
                found = tokenizer(
                    text,
                    add_special_tokens=False,
                    return_offsets_mapping=True,
                    truncation=False,
                    verbose=False,
                )
            tokens = [(first, end) for first, end in found["offset_mapping"] if end > first]
        else:
            tokens = [(i, i + 1) for i in range(len(text))]
        if len(tokens) <= self._max_tokens:
            return whole
        step = self._max_tokens - self._max_tokens // _OVERLAP
        pieces = []
        for start in range(0, len(tokens) - self._max_tokens + step, step):
            piece = tokens[start : start + self._max_tokens]
            pieces.append((piece[0][0], piece[-1][1] - 1))
        return [(0, pieces[0][1]), *pieces[1:-1], (pieces[-1][0], len(text) - 1)]

    def hold(self) -> None:
        """Block forks while the model runs, whose locks the child would inherit."""
        self._held.enter_context(self._lock.acquire(is_urgent=True))

    def let_go(self) -> None:
        """Go on after a fork, in the parent."""
        self._held.close()

    def begin_anew(self) -> None:
        """Replace the lock that a thread of the parent may have held."""
        _left_behind.append(self._held)
        self._held, self._lock = ExitStack(), PriorityLock()

    def _encode(self, texts: list[str], *, is_query: bool) -> Float32s:
        encode = self._model.encode_query if is_query else self._model.encode_document
        vectors: Float32s = encode(
            texts,
            batch_size=_BATCH,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=True,
        )
        return vectors.astype(np.float32, copy=False)


def _reads(tokenizer: Any, text: str) -> bool:
    """Return whether *text* has tokens besides unknown ones, single characters and bytes."""
    token_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return tokenizer.unk_token_id not in token_ids and len(token_ids) < len(text)


_left_behind: list[ExitStack] = []
"""Locks of the parent process: releasing one could wait for one of its threads."""
