"""
Verification of imports by the hash chain in the file, as far as it covers the data.

An export declares its chain, so that one whose chain was removed, wholly or partly, is rejected.
One of an older version has no chain, or one without the prompt log: data outside of it is not
verified, and is chained on import.
"""

from pathlib import Path
from typing import Final

from sqlalchemy import Connection, bindparam, exists, or_, select

from agentmem.errors import DamagedFileError
from agentmem.store.chain.backfill import chain_made, chain_replacements, chain_session
from agentmem.store.database.schema import (
    AssemblyRow,
    BranchRow,
    EventRow,
    MessageRow,
    PinRow,
    PinVersionRow,
)
from agentmem.store.integrity.verify_branches import verify_session
from agentmem.store.transfer.records import NUM_MAINS
from agentmem.types import Scope

CHAIN: Final = 2
"""Coverage of the chain: version 1 has messages and pins, 2 prompt log and summaries too."""

_BRANCHES: Final = select(BranchRow.id).where(BranchRow.session_id == bindparam("session"))
_HAS_LOG: Final = select(
    or_(
        exists().where(
            BranchRow.session_id == bindparam("session"), BranchRow.log_chain.is_not(None)
        ),
        exists().where(AssemblyRow.branch_id.in_(_BRANCHES), AssemblyRow.link.is_not(None)),
    )
)
_HAS_CHAIN: Final = select(
    or_(
        exists().where(BranchRow.session_id == bindparam("session"), BranchRow.chain.is_not(None)),
        exists().where(
            MessageRow.branch_id.in_(_BRANCHES),
            or_(
                MessageRow.link.is_not(None),
                MessageRow.nonce.is_not(None),
                MessageRow.sealed.is_not(None),
            ),
        ),
        exists().where(EventRow.branch_id.in_(_BRANCHES)),
        exists().where(
            PinRow.session_id == bindparam("session"),
            PinVersionRow.pin_id == PinRow.id,
            PinVersionRow.nonce.is_not(None),
        ),
    )
)


def hold_to_chain(  # noqa: PLR0913 - an import, and what it says of itself
    connection: Connection,
    session_id: int,
    path: Path,
    *,
    named: Scope,
    written: Scope,
    is_declared: bool,
) -> str | None:
    """
    Verify an imported session against its chain, and chain the rest.

    Return a description of unverified data; None if the chain covers all.

    Raises:
        DamagedFileError: data does not match the chain.
    """
    keys = {"session": session_id}
    num_mains = connection.execute(NUM_MAINS, keys).scalar_one()
    if num_mains != 1:
        raise DamagedFileError(
            f"{path} has a session with {num_mains} main branches, not one; nothing was imported"
        )
    level = CHAIN if is_declared or connection.execute(_HAS_LOG, keys).scalar_one() else 1
    if level == 1 and not connection.execute(_HAS_CHAIN, keys).scalar_one():
        chain_session(connection, session_id)
        chain_made(connection, session_id, is_new=True)
        chain_replacements(connection, session_id)
        return "nothing"
    whose = {"namespace": named.namespace, "user": named.user}
    found = verify_session(
        connection, session_id, integrity=True, named=whose, with_made=level == CHAIN
    ).found
    if found:
        first = found[0]
        where = "" if first.position is None else f"message {first.position} "
        raise DamagedFileError(
            f"{path} does not follow its hash chain in {len(found)} places, the first: "
            f"{where}{first.problem}; nothing was imported"
        )
    if named != written:
        chain_session(connection, session_id)
    if named != written or level != CHAIN:
        chain_made(connection, session_id, is_new=level != CHAIN)
    if level != CHAIN:
        chain_replacements(connection, session_id)
    return None if level == CHAIN else "its messages and pins alone"
