"""Random work over two connections against a model of the store in plain Python."""

from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agentmem.errors import ConflictError, PinNotFoundError, SessionNotFoundError, TranscriptError
from agentmem.store import Store
from agentmem.types import BranchState, Inherit, Origin, PinScope, Scope
from tests.builders import call, result, say
from tests.store.conftest import DATABASES
from tests.store.invariants import check
from tests.store.model import ModelBranch, ModelPin, visible_pins

_users = count(1)
IDS = st.sampled_from("abc")
MESSAGES = st.one_of(
    st.sampled_from([say("user", "u"), say("assistant", "s")]),
    st.lists(IDS, min_size=1, max_size=3, unique=True).map(lambda ids: call(*ids)),
    IDS.map(result),
    IDS.map(lambda call_id: say("tool", "r", tool_call_id=call_id, name="look")),
)
WHICH = st.integers(0, 5)


class StoreMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self):
        super().__init__()
        first = Store.open(self.url)
        is_shared = not first.database.is_memory
        self.stores = [first, Store.open(self.url)] if is_shared else [first]
        self.scope = Scope(namespace="machine", user=f"user {next(_users)}")
        info = first.sessions.get_or_create(self.scope, "k")
        self.branches = [(info.main, ModelBranch())]
        self.pins = {PinScope.USER: {}, PinScope.SESSION: {}}
        self.orders = count()
        self.touched = self.branches[0]

    def teardown(self):
        check(self.stores[0])
        for store in self.stores:
            store.close()

    def pick(self, which):
        self.stores.reverse()
        self.touched = self.branches[which % len(self.branches)]
        return self.touched

    @rule(
        which=WHICH,
        messages=st.lists(MESSAGES, min_size=1, max_size=3),
        origin=st.sampled_from([Origin.SAID, Origin.PROMOTED]),
        client_key=st.sampled_from([None, None, None, "k1", "k2"]),
    )
    def append(self, which, messages, origin, client_key):
        branch_id, branch = self.pick(which)
        start = len(branch.view())

        def really():
            return self.stores[0].messages.append(
                self.scope, branch_id, messages, origin=origin, client_key=client_key
            )

        try:
            expected = branch.append(messages, origin, client_key)
        except (ConflictError, TranscriptError) as error:
            with pytest.raises(type(error)):
                really()
            return
        stored = really()
        assert [(item.message, item.origin) for item in stored] == expected
        if len(branch.view()) > start:
            assert stored[0].position == start + 1

    @rule(which=WHICH, inherit=st.sampled_from(Inherit), data=st.data())
    def fork(self, which, inherit, data):
        if len(self.branches) == 6:
            return
        branch_id, branch = self.pick(which)
        at = data.draw(st.integers(0, len(branch.view())))
        info = self.stores[0].sessions.fork(self.scope, branch_id, name="t", inherit=inherit, at=at)
        self.branches.append((info.id, ModelBranch(branch, at, inherit)))

    @rule(
        which=WHICH,
        expected=st.sampled_from(BranchState),
        state=st.sampled_from([BranchState.OPEN, BranchState.OPEN, BranchState.ENDED]),
    )
    def set_state(self, which, expected, state):
        branch_id, branch = self.pick(which)
        sessions = self.stores[0].sessions
        if branch.state is expected:
            sessions.set_state(self.scope, branch_id, expected=expected, state=state)
            branch.state = state
        else:
            with pytest.raises(ConflictError):
                sessions.set_state(self.scope, branch_id, expected=expected, state=state)

    @rule(which=st.integers(1, 5))
    def delete_branch(self, which):
        if which >= len(self.branches):
            return
        branch_id, branch = self.branches[which]
        gone = self.stores[0].deletion.branch(self.scope, branch_id)
        doomed = [pair for pair in self.branches if pair[1].descends_from(branch)]
        assert list(gone.branches) == [pair[0] for pair in doomed]
        self.branches = [pair for pair in self.branches if pair not in doomed]
        branch.parent.children.remove(branch)
        self.touched = self.branches[0]

    @rule(which=WHICH, position=st.integers(1, 8))
    def delete_message(self, which, position):
        branch_id, branch = self.pick(which)
        deletion = self.stores[0].deletion
        if position <= len(branch.view()):
            deletion.message(self.scope, branch_id, position)
            branch.delete(position)
        else:
            with pytest.raises(SessionNotFoundError):
                deletion.message(self.scope, branch_id, position)

    @rule(
        which=WHICH,
        key=st.sampled_from("xyz"),
        text=st.sampled_from([None, "1", "2"]),
        pin_scope=st.sampled_from(PinScope),
        version=st.sampled_from([None, None, 0, 1, 2]),
    )
    def pin(self, which, key, text, pin_scope, version):
        branch_id, branch = self.pick(which)
        group = branch.pins if pin_scope is PinScope.BRANCH else self.pins[pin_scope]
        known = group.get(key)
        newest = len(known.versions) if known else 0
        expected = ConflictError if version not in (None, newest) else None
        expected = expected or (PinNotFoundError if text is None and known is None else None)
        options = {"pin_scope": pin_scope, "expected_version": version}
        pins = self.stores[0].pins

        def really():
            if text is None:
                return pins.remove(self.scope, branch_id, key, **options)
            return pins.set(self.scope, branch_id, key, text, **options)

        if expected is not None:
            with pytest.raises(expected):
                really()
            return
        really()
        if known is None:
            known = group[key] = ModelPin(next(self.orders))
        if not known.versions or known.versions[-1] != text:
            known.versions.append(text)

    @invariant()
    def the_store_is_as_the_model_says(self):
        branch_id, branch = self.touched
        store = self.stores[-1]
        view = store.messages.read(self.scope, branch_id)
        assert [(item.message, item.origin) for item in view] == branch.view()
        assert [item.position for item in view] == list(range(1, len(view) + 1))
        info = store.sessions.branch(self.scope, branch_id)
        assert (info.head, info.state) == (len(view), branch.state)
        promoted = [item for item in view if item.origin is Origin.PROMOTED]
        assert list(store.messages.promoted(self.scope, branch_id)) == promoted
        pins = store.pins.visible(self.scope, branch_id)
        assert [pin.text for pin in pins] == visible_pins(branch, self.pins)


@pytest.mark.slow
@pytest.mark.parametrize("database", DATABASES)
def test_the_store_is_what_its_model_is(database, tmp_path, request):
    class Machine(StoreMachine):
        url = {
            "sqlite-file": f"sqlite:///{tmp_path / 'agent.db'}",
            "sqlite-memory": "sqlite://",
            "postgres": "",
        }[database] or request.getfixturevalue("postgres_url")

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=30, stateful_step_count=30, deadline=None)
    )
