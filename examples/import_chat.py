"""
Import of an old chat: messages with their times go into a session, once, whatever is run again.

Run ``python examples/import_chat.py FILE.json``: a list of objects with ``id``, ``role``, ``text``
and ``time`` (ISO 8601, with a zone). Without a file it imports the chat below.
"""

import json
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from agentmem import Budget, Memory, Session
from agentmem.testing import WordCounter

OLD = """[
  {"id": "a1", "role": "system", "text": "You plan trips.", "time": "2026-05-03T09:00+02:00"},
  {"id": "a2", "role": "user", "text": "My passport ends in 2029.", "time": "2026-05-03T07:01Z"},
  {"id": "a3", "role": "assistant", "text": "Noted.", "time": "2026-05-03T09:02+02:00"},
  {"id": "a4", "role": "user", "text": "And I get seasick.", "time": "2026-06-11T18:20+02:00"},
  {"id": "a5", "role": "assistant", "text": "No ferries, then.", "time": "2026-06-11T18:21+02:00"}
]"""


def bring_in(session: Session, messages: Iterable[dict[str, str]]) -> int:
    """Append *messages* in their order; return how many are new."""
    before = session.branch.head
    for one in messages:
        if one["role"] == "system":
            session.pin("role", one["text"])  # a system message is a pin here
            continue
        session.append(
            one["role"],
            one["text"],
            created_at=datetime.fromisoformat(one["time"]),
            client_key=f"import {one['id']}",  # the same key again stores nothing
        )
    return session.branch.head - before


def main(text: str = OLD, url: str = "sqlite:///imported.db") -> None:
    """Import a chat twice, and show what a prompt makes of it."""
    messages = json.loads(text)
    budget = Budget(context=1024, reply=64)
    # Give a model in place of the counter to go on with the chat.
    with Memory.open(url, counter=WordCounter(), budget=budget, timezone="Europe/Berlin") as memory:
        session = memory.session("imported", user="ana")
        print("new:", bring_in(session, messages), "- once more:", bring_in(session, messages))
        for stored in session.messages():
            print(f"{stored.created_at:%Y-%m-%d}", stored.message.role, stored.message.text)
        print(session.assemble().num_tokens, "tokens; balances:", session.check() == ())


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_text("utf-8") if len(sys.argv) > 1 else OLD)
