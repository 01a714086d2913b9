"""An `RetrievalStore` in plain Python, as strict as the real one."""

import threading
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from agentmem.protocols import BranchRange, Embedding, SearchScope
from agentmem.types import BranchId, Message, MessageId, Origin, Scope, SessionId, StoredMessage
from tests.builders import NOON, say

SCOPE = Scope(namespace="tests", user="u42")
USER = SearchScope(scope=SCOPE)


@dataclass(kw_only=True)
class Line:
    """A branch and its own messages."""

    scope: Scope
    session_id: SessionId
    parent: BranchId | None = None
    forked_at: int = 0
    messages: list[StoredMessage] = field(default_factory=list)

    @property
    def head(self):
        return self.forked_at + len(self.messages)


class ListRetrievalStore:
    """Branches by their ids; a session is made by its first branch."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.lines: dict[BranchId, Line] = {}
        self.vectors: dict[tuple[str, MessageId], list[Embedding]] = {}
        self.num_embedded_twice = 0
        self._lock = threading.RLock()
        self._message_ids = count(1)
        self._branch_ids = count(1)

    def branch(self, session_id=1, *, scope=SCOPE, parent=None, forked_at=0):
        with self._lock:
            branch_id = BranchId(next(self._branch_ids))
            self.lines[branch_id] = Line(
                scope=scope,
                session_id=SessionId(session_id),
                parent=parent,
                forked_at=forked_at,
            )
            return branch_id

    def append(self, branch_id, *said: str | Message, origin=Origin.SAID):
        """Store texts of the user, or whole messages, and give their ids."""
        with self._lock:
            line = self.lines[branch_id]
            for one in said:
                line.messages.append(
                    StoredMessage(
                        id=MessageId(next(self._message_ids)),
                        branch_id=branch_id,
                        position=line.head + 1,
                        message=say("user", one) if isinstance(one, str) else one,
                        origin=origin,
                        created_at=NOON,
                    )
                )
            return [stored.id for stored in line.messages[len(line.messages) - len(said) :]]

    def empty(self, message_id):
        """Delete what a message says; its place stays."""
        with self._lock:
            for line in self.lines.values():
                line.messages = [
                    replace(old, message=say("user", "[deleted]"), origin=Origin.DELETED)
                    if old.id == message_id
                    else old
                    for old in line.messages
                ]
            self._forget_vectors({message_id})

    def drop(self, branch_id):
        """Delete a branch, and give the ids of its messages."""
        with self._lock:
            gone = {stored.id for stored in self.lines.pop(branch_id).messages}
            self._forget_vectors(gone)
            return sorted(gone)

    def branch_ranges(self, search_scope):
        with self._lock:
            return [
                BranchRange(
                    session_id=line.session_id,
                    branch_id=branch_id,
                    parent=line.parent,
                    forked_at=line.forked_at,
                    head=line.head,
                )
                for branch_id, line in sorted(self._of(search_scope).items())
            ]

    def read(self, search_scope, branch_id, first, last):
        with self._lock:
            line = self._of(search_scope).get(branch_id)
            found = line.messages if line else []
            return [stored for stored in found if first <= stored.position <= last]

    def get(self, search_scope, message_ids):
        with self._lock:
            wanted = set(message_ids)
            found = [s for line in self._of(search_scope).values() for s in line.messages]
            return [s for s in found if s.id in wanted and s.origin is not Origin.DELETED]

    def embeddings(self, fingerprint, message_ids):
        with self._lock:
            ids = sorted(set(message_ids))
            return [one for i in ids for one in self.vectors.get((fingerprint, i), ())]

    def add_embeddings(self, fingerprint, embeddings):
        with self._lock:
            alive = {s.id for s in self._all() if s.origin is not Origin.DELETED}
            new = {one.message_id for one in embeddings} & alive
            again = {i for i in new if (fingerprint, i) in self.vectors}
            self.num_embedded_twice += len(again)
            for one in embeddings:
                if one.message_id in new - again:
                    self.vectors.setdefault((fingerprint, one.message_id), []).append(one)

    def not_embedded(self, fingerprint, *, after, limit):
        with self._lock:
            found = [
                stored
                for stored in self._all()
                if stored.id > after
                and stored.origin is not Origin.DELETED
                and (fingerprint, stored.id) not in self.vectors
            ]
            return found[:limit]

    def table(self, fingerprint, dimension):
        """Say that this database compares no vectors."""

    def _of(self, search_scope):
        return {
            branch_id: line
            for branch_id, line in self.lines.items()
            if line.scope == search_scope.scope
            and search_scope.session_id in (None, line.session_id)
        }

    def _all(self):
        return sorted(
            (s for line in self.lines.values() for s in line.messages), key=lambda s: s.id
        )

    def _forget_vectors(self, message_ids):
        self.vectors = {key: v for key, v in self.vectors.items() if key[1] not in message_ids}
