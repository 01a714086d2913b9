"""Short ways to ask."""

from agentmem.protocols import Query
from agentmem.types import SessionId
from tests.retrieval.retrieval_store import USER


def ask(text, *, search_scope=USER, session=1, visible=None, limit=10):
    return Query(
        text=text,
        search_scope=search_scope,
        session_id=SessionId(session),
        visible=visible or {},
        limit=limit,
    )


def found(recall, text, **options):
    return [hit.stored.id for hit in recall.search(ask(text, **options))]
