"""Short ways to ask."""

from agentmem.protocols import Query
from agentmem.types import SessionId
from tests.retrieval.archive import USER


def ask(text, *, domain=USER, session=1, visible=None, limit=10):
    return Query(
        text=text,
        domain=domain,
        session_id=SessionId(session),
        visible=visible or {},
        limit=limit,
    )


def found(recall, text, **options):
    return [hit.stored.id for hit in recall.search(ask(text, **options))]
