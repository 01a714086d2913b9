"""What is no moment and no position is the same error on every database."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from agentmem.errors import InvalidInputError, SessionNotFoundError
from agentmem.types import Inherit

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))


@pytest.mark.parametrize(
    "moment",
    [
        datetime.min.replace(tzinfo=EAST),
        datetime.max.replace(tzinfo=WEST),
        datetime(2026, 1, 1),  # noqa: DTZ001 - the point of the test
        "2026-01-01",
        None,
    ],
)
def test_what_is_no_moment_in_utc_is_refused(store, scope, main, moment):
    for use in (
        lambda: store.retention.stale(moment),
        lambda: store.retention.purge(moment),
        lambda: store.messages.head_at(scope, main, moment),
    ):
        with pytest.raises(InvalidInputError) as caught:
            use()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("edge", [datetime.min, datetime.max])  # noqa: DTZ901 - it gets one below
def test_the_first_and_the_last_moment_of_utc_are_moments(store, scope, main, append, edge):
    append("a")
    moment = edge.replace(tzinfo=UTC)

    found = store.retention.stale(moment)

    assert len(found) == store.messages.head_at(scope, main, moment)
    assert len(found) == (moment.year == 9999)


@pytest.mark.parametrize("position", [True, 1.0, 1.5, float("nan"), "1", b"1", [1]])
def test_what_is_no_whole_number_is_no_position(store, scope, main, append, position):
    append("a")

    for use in (
        lambda: store.messages.read(scope, main, first=position),
        lambda: store.messages.read(scope, main, last=position),
        lambda: store.messages.promoted(scope, main, first=position),
        lambda: store.deletion.message(scope, main, position),
        lambda: store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=position),
    ):
        with pytest.raises(InvalidInputError, match="integer"):
            use()
    with pytest.raises(SessionNotFoundError):
        store.messages.read(scope, position)

    assert store.messages.read(scope, main)[0].message.text == "a"
