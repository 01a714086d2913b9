"""Short ways to write what is searched."""

from datetime import timedelta

import numpy as np

from agentmem.protocols import Query, SearchScope
from agentmem.retrieval.lexical.bm25 import LexicalIndex
from agentmem.retrieval.rows.message_table import IndexedMessage, MessageTable
from agentmem.types import BranchId, MessageId, Role, Scope, SessionId
from tests.builders import NOON


def entry(number, text, *, minute=0, role="user", speaker=None, **place):
    """A message whose id and position are *number*, said so many minutes after noon."""
    return IndexedMessage(
        message_id=MessageId(number),
        branch_id=BranchId(place.get("branch", 1)),
        session_id=SessionId(place.get("session", 1)),
        position=number,
        created_at=NOON + timedelta(minutes=minute),
        role=Role(role),
        speaker=speaker or role,
        text=text,
    )


def said(*texts, **fields):
    """Messages of one sitting, a minute apart."""
    return [entry(i, text, minute=i, **fields) for i, text in enumerate(texts, start=1)]


def indexed(entries):
    message_table, lexical = MessageTable(), LexicalIndex()
    lexical.add(entries, message_table.add(entries))
    return message_table, lexical


def query(text="which", *, visible=None, session=1, limit=100, everywhere=False):
    return Query(
        text=text,
        search_scope=SearchScope(
            scope=Scope(), session_id=None if everywhere else SessionId(session)
        ),
        session_id=SessionId(session),
        visible={BranchId(1): (1, 1 << 30)} if visible is None else visible,
        limit=limit,
    )


def ids(message_table, rows):
    return message_table.message_ids[np.asarray(rows, dtype=np.int64)].tolist()
