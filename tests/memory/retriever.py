"""A retriever that finds by shared words, reads all each time and keeps nothing."""

from dataclasses import dataclass, field

from agentmem.protocols import Hit


@dataclass
class WordRetriever:
    """Remembers what it was asked and told."""

    queries: list = field(default_factory=list)
    forgotten: list = field(default_factory=list)
    num_added: int = 0
    is_closed: bool = False

    def open_index(self, retrieval_store):
        self.retrieval_store = retrieval_store
        return self

    def search(self, query):
        self.queries.append(query)
        wanted = set(query.text.lower().split())
        found = []
        for stored, session_id in self._read(query):
            score = len(wanted & set(stored.message.text.lower().split()))
            if score:
                is_local = session_id == query.session_id
                found.append(Hit(stored=stored, score=score, is_local=is_local))
        found.sort(key=lambda hit: (-hit.score, hit.stored.id))
        return found[: query.limit]

    def _read(self, query):
        for branch_range in self.retrieval_store.branch_ranges(query.search_scope):
            first, last = branch_range.forked_at + 1, branch_range.head
            if branch_range.session_id == query.session_id:
                first, last = query.visible.get(branch_range.branch_id, (1, 0))
            for stored in self.retrieval_store.read(
                query.search_scope, branch_range.branch_id, first, last
            ):
                yield stored, branch_range.session_id

    def added(self):
        self.num_added += 1

    def forget(self, scope, message_ids):
        self.forgotten.append((scope.user, tuple(message_ids)))

    def wait(self, timeout_s=None):
        return timeout_s != 0

    def close(self):
        self.is_closed = True
