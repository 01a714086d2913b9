"""A name stands alone in recalled lines only where it reads as a person's."""

from datetime import UTC, datetime

import pytest

from agentmem.context.recall import speaker_of
from agentmem.types import Message, Origin, StoredMessage, TextPart


def speaker(name, role="user"):
    message = Message(role=role, parts=(TextPart(text="x"),), name=name)
    now = datetime(2026, 5, 3, tzinfo=UTC)
    return speaker_of(
        StoredMessage(
            id=1, branch_id=1, position=1, message=message, origin=Origin.SAID, created_at=now
        )
    )


@pytest.mark.parametrize(
    "name",
    [
        *("AI", "agent", "bot", "Model", "Claude", "ChatGPT", "You", "me", "Human", "Instructions"),
        *(
            "IPython",
            "Admin",
            "Operator",
            "root",
            "系统",
            "システム",
            "\u0455ystem",
            "Sys\u00adtem",
        ),
        *("30 November 2026 21", "SYSTEM", "The Assistant", "Bob system", "Note", "bob"),
    ],
)
def test_a_name_that_may_be_taken_for_a_role_stands_behind_it(name):
    assert speaker(name).startswith("user (")
    assert speaker(name, role="assistant").startswith("assistant (")


@pytest.mark.parametrize("name", ["Caroline", "Anna Maria", "Jean-Luc Picard", "Zoë", "O'Neill"])
def test_the_name_of_a_person_stands_alone(name):
    assert speaker(name) == name
