import pytest

from agentmem.types import PinScope


@pytest.mark.parametrize("pin_scope", PinScope)
def test_a_pin_that_shows_an_older_version_of_its_own_is_found(store, scope, pin_scope):
    """Each version is what was set; only which of them is shown was edited."""
    session = store.sessions.get_or_create(scope, "k")
    for text in ("as it was", "as it is"):
        store.pins.set(scope, session.main, "role", text, pin_scope=pin_scope)
    assert store.heads.verify(scope, session.id, integrity=True) == ()

    store.database.write(
        lambda connection: connection.exec_driver_sql("UPDATE pin SET version = 1")
    )

    found = store.heads.verify(scope, session.id, integrity=True)
    assert found
    assert all("'role' is not what was set" in one.problem for one in found)
