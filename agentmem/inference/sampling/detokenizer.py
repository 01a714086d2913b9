"""Incremental detokenization: whole characters, and no text past a stop string."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

_REPLACEMENT = "\ufffd"
_MAX_CUT = 64
"""Maximum tokens that are removed to make ids spell a text."""


class Detokenizer:
    """
    The text of one generation.

    Text is held back while it may still change: an incomplete character, or a prefix of a stop
    string.

    Args:
        decode: decodes token ids.
        stop: strings that end the text and are not part of it.
    """

    def __init__(self, decode: Decode, stop: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stop = tuple(stop)
        self._token_ids: list[int] = []
        # Tokens before _start do not affect the decoding of later ones; those from _start to
        # _read are decoded, and are context for the next ones.
        self._start = 0
        self._read = 0
        self._held = ""
        self._given: list[str] = []
        self.stopped = False
        """Whether a stop string was found."""

    @property
    def text(self) -> str:
        """All emitted text."""
        return "".join(self._given)

    def add(self, token_id: int) -> str:
        """Add a token and return the text that is now final."""
        self._token_ids.append(token_id)
        known = self._decode(self._token_ids[self._start : self._read])
        text = self._decode(self._token_ids[self._start :])
        if text.endswith(_REPLACEMENT):
            return ""
        self._start, self._read = self._read, len(self._token_ids)
        return self._give(text[len(known) :])

    def finish(self) -> str:
        """Return the held-back text, without the bytes of an incomplete character."""
        known = self._decode(self._token_ids[self._start : self._read])
        text = self._decode(self._token_ids[self._start :])[len(known) :]
        rest = self._give(text.rstrip(_REPLACEMENT))
        if not self.stopped:
            self._given.append(self._held)
            rest += self._held
            self._held = ""
        return rest

    def spelling_ids(self) -> tuple[int, ...]:
        """Return the leading token ids that decode to exactly the text; empty if there are none."""
        text = self.text
        for end in range(len(self._token_ids), max(len(self._token_ids) - _MAX_CUT, 0), -1):
            ids = self._token_ids[:end]
            if self._decode(ids) == text:
                return tuple(ids)
        return ()

    def covering_ids(self) -> tuple[int, ...]:
        """Return the shortest prefix of the token ids whose decoding begins with the text."""
        text = self.text
        ids = self._token_ids
        shortest = bisect_left(range(len(ids)), len(text), key=lambda n: len(self._decode(ids[:n])))
        # The last character may need several tokens.
        for end in range(shortest, min(shortest + _MAX_CUT, len(self._token_ids)) + 1):
            if self._decode(self._token_ids[:end]).startswith(text):
                return tuple(self._token_ids[:end])
        return ()

    def _give(self, new: str) -> str:
        """Emit the part of the held-back text that cannot belong to a stop string."""
        if self.stopped:
            return ""
        self._held += new
        found = [at for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            out, self._held = self._held[: min(found)], ""
        else:
            safe = len(self._held) - max(
                (_overlap(self._held, stop) for stop in self._stop), default=0
            )
            out, self._held = self._held[:safe], self._held[safe:]
        self._given.append(out)
        return out


def _overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of *text* that is a prefix of *stop*."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
