"""Batching policy: which rows form a batch, their shared prefixes and buffers. Plain Python."""

from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

from agentmem.inference.kv_cache.block_pool import BlockId

MIN_SHARED_TOKENS = 64
"""A shared part costs two more products per layer; below this size copying is cheaper."""

MAX_PAD_SLOTS = 4096
"""Padding that is worth one pass less; a pass costs as much as about ten thousand."""

SPARE_SLOTS = 256
"""Spare slots for later tokens, so that buffers are not copied at each step."""

_LITTLE_SPARE = 64
_MIN_ROWS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Buffer size of a run: rows, and slots per row; a slot holds one position."""

    rows: int
    slots: int


def least_slots(num_rows: int, width: int, *, block_size: int) -> int:
    """
    Return the minimum slots of a run whose longest row is *width* long.

    Each row has one block more, since whole blocks are read from it, and one to continue in.
    """
    return num_rows * (width + 2 * block_size)


def choose_room(
    num_rows: int, width: int, *, block_size: int, limit: int, is_short: bool
) -> Room | None:
    """
    Return the buffer size of a run, with spare rows and tokens as far as *limit* allows.

    Args:
        num_rows: initial rows.
        width: positions of the longest one after the next pass.
        block_size: tokens in a block.
        limit: available slots.
        is_short: whether other runs compete for them; then without spare slots.
    """
    for rows, spare in _wishes(num_rows, block_size, is_short=is_short):
        slots = width + block_size + spare
        if rows * slots <= limit:
            return Room(rows=rows, slots=slots)
    return None


def _wishes(num_rows: int, block_size: int, *, is_short: bool) -> Iterator[tuple[int, int]]:
    if not is_short:
        if num_rows > 1:
            yield max(_MIN_ROWS, 1 << (num_rows - 1).bit_length()), SPARE_SLOTS
        yield num_rows, SPARE_SLOTS
        yield num_rows, _LITTLE_SPARE
    yield num_rows, block_size
    yield num_rows, 0


def grown(room: Room, end: int, *, block_size: int, free: int) -> Room | None:
    """
    Return a larger buffer size for a run whose rows will end at slot *end*; None if out of memory.

    Args:
        room: its current size.
        end: one past the last slot of the next pass.
        block_size: tokens in a block.
        free: free slots besides it.
    """
    for spare in (max(SPARE_SLOTS, end // 2), SPARE_SLOTS, _LITTLE_SPARE, block_size):
        slots = end + block_size + spare
        if room.rows * (slots - room.slots) <= free:
            return Room(rows=room.rows, slots=slots)
    return None


def shared_prefixes(tables: Items[Items[BlockId]], *, block_size: int) -> list[int]:
    """
    Return for each row the number of blocks to share with other rows.

    Rows with the same prefix blocks and the same number share that part. The parts are chosen to
    save most blocks: a long part for few rows, or a short one for many.

    Args:
        tables: the whole blocks of each row that are in the pool.
        block_size: tokens in a block.
    """
    least = -(-MIN_SHARED_TOKENS // block_size)
    depths = [0] * len(tables)
    for rows in _by_block(tables, range(len(tables)), 0):
        for row, depth in _best(tables, rows, 0, least)[1].items():
            depths[row] = depth
    return depths


def _best(
    tables: Items[Items[BlockId]], rows: list[int], depth: int, least: int
) -> tuple[int, dict[int, int]]:
    """Return the saved blocks, and each row's share, among *rows* that are equal up to *depth*."""
    if len(rows) == 1:
        return 0, {}
    shortest = min(len(tables[row]) for row in rows)
    while depth < shortest and len({tables[row][depth] for row in rows}) == 1:
        depth += 1
    saved = 0
    chosen: dict[int, int] = {}
    for part in _by_block(tables, rows, depth):
        more, deeper = _best(tables, part, depth, least)
        saved += more
        chosen |= deeper
    whole = (len(rows) - 1) * depth if depth >= least else 0
    return (whole, dict.fromkeys(rows, depth)) if whole > saved else (saved, chosen)


def _by_block(
    tables: Items[Items[BlockId]], rows: Items[int] | range, depth: int
) -> list[list[int]]:
    parts: dict[BlockId, list[int]] = {}
    for row in rows:
        if len(tables[row]) > depth:
            parts.setdefault(tables[row][depth], []).append(row)
    return list(parts.values())


def split_by_length(lengths: Items[int]) -> list[list[int]]:
    """
    Group rows of these *lengths*; each group is padded to one length.

    A group is split where its longest row is more than twice its shortest, if that saves more
    padding than another pass costs.
    """
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if groups:
            group, longest = groups[-1], lengths[row]
            padding = sum(longest - lengths[other] for other in group)
            if longest <= 2 * lengths[group[0]] or padding <= MAX_PAD_SLOTS:
                group.append(row)
                continue
        groups.append([row])
    return groups
