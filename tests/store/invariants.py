"""What must hold in any database of the store, whatever happened to its writers."""

from sqlalchemy import text

BROKEN = {
    "a branch whose messages are not dense": """
        SELECT branch.id FROM branch LEFT JOIN message ON message.branch_id = branch.id
        GROUP BY branch.id, branch.forked_at, branch.head
        HAVING count(message.id) <> branch.head - branch.forked_at
            OR min(message.position) <> branch.forked_at + 1
            OR max(message.position) <> branch.head
    """,
    "a branch that miscounts its open calls": """
        SELECT branch.id FROM branch LEFT JOIN tool_call
            ON tool_call.branch_id = branch.id AND tool_call.answered_at IS NULL
        GROUP BY branch.id, branch.open_calls
        HAVING count(tool_call.id) <> branch.open_calls
    """,
    "a call answered by something that is no result": """
        SELECT tool_call.id FROM tool_call LEFT JOIN message
            ON message.branch_id = tool_call.branch_id
            AND message.position = tool_call.answered_at
        WHERE tool_call.answered_at IS NOT NULL
            AND (message.role IS NULL OR message.role <> 'tool'
                 OR message.tool_call_id <> tool_call.call_id)
    """,
    "a result of no call": """
        SELECT message.id FROM message LEFT JOIN tool_call
            ON tool_call.branch_id = message.branch_id
            AND tool_call.answered_at = message.position
        WHERE message.role = 'tool' AND tool_call.id IS NULL
    """,
    "a client key of messages that are not there": """
        SELECT append.branch_id FROM append JOIN branch ON branch.id = append.branch_id
        WHERE append.last > branch.head OR append.first <= branch.forked_at
    """,
    "a pin that is not at its newest version": """
        SELECT pin.id FROM pin LEFT JOIN pin_version ON pin_version.pin_id = pin.id
        GROUP BY pin.id, pin.version
        HAVING count(*) <> pin.version OR max(pin_version.version) <> pin.version
    """,
    "a vector of a message without content": """
        SELECT message.id FROM message JOIN embedding ON embedding.message_id = message.id
        WHERE message.origin = 'deleted'
    """,
    "a session without a main branch of its own": """
        SELECT session.id FROM session LEFT JOIN branch
            ON branch.session_id = session.id AND branch.parent_id IS NULL
        GROUP BY session.id HAVING count(branch.id) <> 1
    """,
}


def check(store):
    """Assert that nothing in the whole database is half-written."""

    def look(connection):
        if connection.dialect.name == "sqlite":
            assert connection.execute(text("PRAGMA integrity_check")).scalars().all() == ["ok"]
            assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
        return {
            what: found
            for what, query in BROKEN.items()
            if (found := connection.execute(text(query)).all())
        }

    assert store.database.read(look) == {}
