"""The embedder on sentence-transformers. Importing this loads torch."""

import hashlib
import os
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from agentmem.errors import ModelLoadError
from agentmem.machine.device import choose_device, compute_in_one_thread_in_forks
from agentmem.machine.quiet import quiet_libraries
from agentmem.retrieval.dense.embedder_files import DEFAULT_EMBEDDER, digest_of, find_embedder
from agentmem.retrieval.dense.priority_lock import PriorityLock
from agentmem.retrieval.rows.growable_array import Float32s
from agentmem.types.short_repr import short_repr

__all__ = ["DEFAULT_EMBEDDER", "SentenceEmbedder"]

_VERSION = "1"
"""Part of the fingerprint: to be raised when the same texts come to give other vectors."""

_MAX_TOKENS = 512
_MIN_TOKENS = 16
_SPEAKER_TOKENS = 16
"""Kept free for the name of who speaks, which is put before each piece of a text."""

_OVERLAP = 4
"""Pieces of a long text share one part of so many."""

_CHINESE = "我家的猫很喜欢在窗边睡觉，我们都叫它豆包。"  # noqa: RUF001 - as it is written
"""My cat likes to sleep by the window, and we call it Doubao: what a tokenizer is tried on."""

_BATCH = 16
"""Texts that are embedded at once; a question waits for no more than these."""


class SentenceEmbedder:
    """
    Any model of sentence-transformers.

    Threads may share it: one embeds at a time, and a question goes before passages that wait.
    """

    def __init__(self, model: SentenceTransformer, digest: str) -> None:
        self._model: Any = model
        self._lock = PriorityLock()
        _embedders.add(self)
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
        Load a model by its name or from a folder.

        Args:
            name: as the hub names it, or a folder.
            device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``; auto takes CUDA where there is one.
            prompts: what is put before a ``query`` and a ``document``, for a model that was
                trained with such texts and does not say so itself.

        Raises:
            ModelLoadError: there is no such model, or it cannot be read.
            ConfigError: there is no such device.
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
        except Exception as error:  # damaged files make their readers raise anything
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise ModelLoadError(
                f"no embedding model can be loaded from {folder}: {lines[0]}"
            ) from error
        return cls(model.eval(), digest_of(Path(folder)))

    @property
    def fingerprint(self) -> str:
        """Name weights, tokenizer, settings, prompts and dimension by their content."""
        return self._fingerprint

    @property
    def dimension(self) -> int:
        return self._dimension

    @property
    def reads_unspaced(self) -> bool:
        """Whether its tokenizer knows Chinese, as those of models of many languages do."""
        return self._reads_unspaced

    def embed_passages(self, texts: Sequence[str]) -> Float32s:
        """Return one vector of length 1 for each of *texts*: (texts, dimension)."""
        vectors = np.zeros((len(texts), self._dimension), np.float32)
        # Texts of about the same length waste no work on padding.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            with self._lock.acquire():
                vectors[batch] = self._encode([texts[i] for i in batch], is_query=False)
        return vectors

    def embed_query(self, text: str) -> Float32s:
        """Return the vector of a query, of length 1: (dimension,)."""
        with self._lock.acquire(is_urgent=True):
            vector: Float32s = self._encode([text], is_query=True)[0]
        return vector

    def split(self, text: str) -> Sequence[tuple[int, int]]:
        """
        Cut *text* where it is longer than the model reads.

        Pieces are first and last character, both included; a quarter of each is in the next one
        too. A tokenizer that does not tell where its tokens stand is taken to need a token for
        each character.
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
    """Return whether *text* is more than unknown tokens, or single characters and bytes of them."""
    token_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return tokenizer.unk_token_id not in token_ids and len(token_ids) < len(text)


_embedders: "weakref.WeakSet[SentenceEmbedder]" = weakref.WeakSet()


_held_for_fork = ExitStack()
_left_behind: list[ExitStack] = []
"""Locks of a parent process: releasing one could wait for one of its threads."""


def _wait_before_fork() -> None:
    """Keep forks out of a running model, whose locks the child would inherit."""
    for embedder in list(_embedders):
        _held_for_fork.enter_context(embedder._lock.acquire(is_urgent=True))  # noqa: SLF001 - its own module


def _go_on_in_child() -> None:
    """Drop the locks that the parent's threads held."""
    _left_behind.append(_held_for_fork.pop_all())
    for embedder in list(_embedders):
        embedder._lock = PriorityLock()  # noqa: SLF001 - its own module


os.register_at_fork(
    before=_wait_before_fork,
    after_in_parent=_held_for_fork.close,
    after_in_child=_go_on_in_child,
)
