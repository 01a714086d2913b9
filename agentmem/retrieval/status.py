"""What a retriever tells about itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallStatus:
    """How far one domain can be searched at this moment, and by what."""

    num_messages: int
    """Messages that can be found."""

    num_embedded: int
    """Those of them that can be found by their meaning."""

    num_pending: int
    """Those that are still to be embedded."""

    lexical_because: str | None
    """Why messages are found by their words alone; None where they are not."""

    fingerprint: str | None
    """Of the embedder."""

    kind: str
    """How vectors are compared."""

    num_bytes: int
    """About how much memory the index takes."""

    generation: int | None
    """Of the index file that was read or written last."""

    file_bytes: int | None
    """Size of the index file, if there is one."""

    last_error: str | None
    """What went wrong last, with the embedder, a stored vector or a file, and is not mended."""
