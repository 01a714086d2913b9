"""A user's pins in an import: verified against their chain, and chained here."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, select

from agentmem.errors import DamagedFileError
from agentmem.store.chain.branch_chain import pin_digest
from agentmem.store.chain.user_chain import SET_CHAIN, add_user_event, follow_user, user_genesis
from agentmem.store.database.schema import OwnerRow, UserEventRow
from agentmem.types import PinScope, Scope

_CHAIN: Final = select(OwnerRow.chain).where(OwnerRow.id == bindparam("owner"))


class UserImport:
    """The data of one user in an export besides sessions."""

    def __init__(
        self, connection: Connection, content: Mapping[str, Any], *, named: Scope, written: Scope
    ) -> None:
        self._connection = connection
        self._named, self._written = named, written
        self._chain = _bytes_of(content.get("chain"))
        self._events: list[dict[str, Any]] = []
        self._keys: dict[int, str] = {}
        self._there: set[str] = set()
        self._new: set[str] = set()

    def pin(self, pin_id: int, key: str) -> None:
        """Add a pin by its new id."""
        self._keys[pin_id] = key

    def version(self, row: Mapping[str, Any], *, is_new: bool) -> None:
        """Add a version, new or already stored."""
        pin = {"scope": PinScope.USER.value, "key": self._keys[row["pin_id"]]}
        text = pin_digest(row["nonce"], pin, row).hex()
        self._there.add(text)
        if is_new:
            self._new.add(text)

    def event(self, row: dict[str, Any]) -> None:
        """Add an event of the chain."""
        self._events.append(row)

    def settle(self, owner_id: int, *, is_declared: bool) -> bool:
        """
        Verify the pins against their chain, and chain the new ones.

        Return whether all are verified. A user of the same name without a chain takes it over
        unchanged; any other chain is extended by the new pins.

        Raises:
            DamagedFileError: they do not match the chain.
        """
        is_chained = is_declared or bool(self._chain or self._events)
        if is_chained:
            self._check()
        begin = user_genesis(self._written.namespace, self._written.user)
        chain = self._connection.execute(_CHAIN, {"owner": owner_id}).scalar_one()
        if self._events and self._named == self._written and chain == begin:
            self._connection.execute(insert(UserEventRow), self._events)
            keys = {"owner": owner_id, "new_chain": self._chain}
            self._connection.execute(SET_CHAIN, keys)
        elif self._new:
            add_user_event(self._connection, owner_id, added=self._new)
        return is_chained or not self._there

    def _check(self) -> None:
        begin = user_genesis(self._named.namespace, self._named.user)
        _, problems, expected = follow_user(begin, self._chain, self._events)
        num_forged, num_gone = len(self._there - expected), len(expected - self._there)
        if num_forged or num_gone:
            problems.append(
                f"{num_forged} versions of the user's pins are not in the chain, and {num_gone} "
                "that are in it are missing"
            )
        if problems:
            raise DamagedFileError(
                f"the pins of user {self._named.user!r} do not follow their hash chain: "
                f"{problems[0]}; nothing was imported"
            )


def _bytes_of(text: object) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except binascii.Error:
        return None
