"""
From text to token ids and back, with an exact account of control tokens.

A control token is one that the tokenizer calls special, or that stands literally in the chat
template. Only what the caller marks as template may become one.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

_CACHE_CHARS = 8_000_000
_MAX_PROBES = 64


class PromptEncoder:
    """
    One model's tokenizer.

    Text between control tokens is encoded piece by piece and remembered, so that a prompt that
    grew costs only what is new. Whether that gives the same ids as encoding the whole text is
    tried out first, and not done where it does not; *is_split* tells which.

    Args:
        tokenizer: a transformers tokenizer.
        template: its chat template.
    """

    def __init__(self, tokenizer: Any, template: str) -> None:
        self._tokenizer = tokenizer
        self._control = {
            token.content: int(token_id)
            for token_id, token in tokenizer.added_tokens_decoder.items()
            if token.content.strip() and (token.special or token.content in template)
        }
        self.control_ids = frozenset(self._control.values())
        self.control_spellings = sorted(self._control, key=len, reverse=True)
        either = "|".join(map(re.escape, self.control_spellings))
        self.control_pattern = re.compile(either or r"(?!)")
        self._cache: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._cached_chars = 0
        self.is_split = self._splitting_is_exact()

    def decode(self, token_ids: Sequence[int]) -> str:
        """Spell *token_ids*, control tokens included."""
        text: str = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def forget(self) -> None:
        """Drop every text that is remembered with its ids."""
        self._cache.clear()

    def encode(self, runs: Iterable[str]) -> list[int]:
        """
        Encode runs of text that follow each other.

        Control tokens are recognised inside a run and never across two: a spelling that must
        stay text is cut in two runs.
        """
        ids: list[int] = []
        for index, run in enumerate(runs):
            if self.is_split:
                ids += self._encode_split(run)
                continue
            whole = self._encode_whole(run) if index == 0 else self._encode_next(run)
            expected = [self._control[spelling] for spelling in self.control_pattern.findall(run)]
            if [token for token in whole if token in self.control_ids] != expected:
                whole = self._encode_split(run)
            ids += whole
        return ids

    def _encode_split(self, run: str) -> list[int]:
        ids: list[int] = []
        start = 0
        for found in self.control_pattern.finditer(run):
            ids += self._encode_plain(run[start : found.start()])
            ids.append(self._control[found[0]])
            start = found.end()
        return ids + list(self._encode_plain(run[start:]))

    def _encode_plain(self, text: str) -> tuple[int, ...]:
        """Encode text without control tokens; remember the ids."""
        if not text:
            return ()
        if (known := self._cache.get(text)) is not None:
            self._cache.move_to_end(text)
            return known
        ids = self._encode_whole(text)
        if not self.control_ids.isdisjoint(ids):
            # The tokenizer sees a control token where none is spelled, such as <THINK> in a
            # model that folds case. Letter by letter it cannot.
            letters = (self._encode_whole(letter) for letter in text)
            ids = [i for letter in letters for i in letter if i not in self.control_ids]
        self._remember(text, tuple(ids))
        return tuple(ids)

    def _remember(self, text: str, ids: tuple[int, ...]) -> None:
        self._cache[text] = ids
        self._cached_chars += len(text)
        while self._cached_chars > _CACHE_CHARS and len(self._cache) > 1:
            self._cached_chars -= len(self._cache.popitem(last=False)[0])

    def _encode_whole(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, verbose=False)
        return ids

    def _encode_next(self, run: str) -> list[int]:
        """Encode a run that continues a text, without the space that some put at its beginning."""
        for anchor in self._control:
            head, ids = self._encode_whole(anchor), self._encode_whole(anchor + run)
            if ids[: len(head)] == head:
                return ids[len(head) :]
        return self._encode_whole(run)

    def _splitting_is_exact(self) -> bool:
        """Try whether pieces give the ids of the whole, around each control token."""
        for token in list(self._control)[:_MAX_PROBES]:
            probe = f"a b {token} c\n{token}\n d{token}{token}E  {token}\n\nf 12.\n"
            if self._encode_split(probe) != self._encode_whole(probe):
                return False
        return bool(self._control)
