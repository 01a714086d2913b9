"""
Tokenize and decode, with exact control of control tokens.

A control token is one that the tokenizer calls special, or that occurs literally in the chat
template. Only text that the caller marks as template may become one.
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

    Segments between control tokens are encoded separately and cached, so that a longer prompt
    costs its new segments only. A probe first checks that this gives the ids of the whole text;
    if not, texts are encoded as a whole and *is_split* is false.

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
        """Decode *token_ids*, control tokens included."""
        text: str = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def forget(self) -> None:
        """Clear the cache of texts and their ids."""
        self._cache.clear()

    def encode(self, runs: Iterable[str]) -> list[int]:
        """
        Encode consecutive segments of text.

        Control tokens are recognised inside a segment and never across two: a spelling that must
        stay text is split over two segments.
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
        """Encode text without control tokens; cache the ids."""
        if not text:
            return ()
        if (known := self._cache.get(text)) is not None:
            self._cache.move_to_end(text)
            return known
        ids = self._encode_whole(text)
        if not self.control_ids.isdisjoint(ids):
            # The tokenizer sees a control token where none is spelled, such as <THINK> with a
            # case-folding model. Letter by letter it cannot.
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
        """Encode a continuing segment, without the space that some tokenizers prepend."""
        for anchor in self._control:
            head, ids = self._encode_whole(anchor), self._encode_whole(anchor + run)
            if ids[: len(head)] == head:
                return ids[len(head) :]
        return self._encode_whole(run)

    def _splitting_is_exact(self) -> bool:
        """Probe whether segments give the ids of the whole text, around each control token."""
        for token in list(self._control)[:_MAX_PROBES]:
            probe = f"a b {token} c\n{token}\n d{token}{token}E  {token}\n\nf 12.\n"
            if self._encode_split(probe) != self._encode_whole(probe):
                return False
        return bool(self._control)
