"""Which rows go through the model together, and what they share. Plain Python."""

from collections.abc import Sequence as Items

from agentmem.inference.block_pool import BlockId

MIN_SHARED_TOKENS = 64
"""A shared part costs two more products per layer; below this it is cheaper to copy it."""

MAX_PAD_SLOTS = 4096
"""Padding that is put up with for one pass less; a pass costs as much as ten thousand or so."""


def shared_prefixes(tables: Items[Items[BlockId]], *, block_size: int) -> list[int]:
    """
    Tell for each row how many blocks it should share with other rows.

    Rows that begin with the same blocks and have the same number share that part. The parts are
    chosen so that most blocks are held once: a deep part for few, or a shallow one for many.

    Args:
        tables: the blocks of each row that are filled and in the pool.
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
    """Give the blocks saved, and each row's share, among *rows* that are alike up to *depth*."""
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
    Put rows of such *lengths* into groups, each of which is padded to one length.

    A group is split where its longest row is over twice its shortest, if that saves more padding
    than a pass of its own costs.
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
