from agentmem.cli.script import Ask, Delegate, Restart, travel


def test_the_travel_script_has_what_the_demo_shows():
    script = travel()

    kinds = [type(step) for step in script.steps]
    asks = [step for step in script.steps if isinstance(step, Ask)]
    assert len(script.pins) == 2
    assert len(asks) >= 24
    assert sum(bool(ask.calls) for ask in asks) >= 7
    assert any(len(ask.calls) > 1 for ask in asks)
    assert kinds.count(Delegate) == 2
    assert kinds.count(Restart) == 1
    assert 0 < kinds.index(Restart) < len(kinds) - 1


def test_every_call_has_its_result():
    script = travel()
    inner = [ask for step in script.steps if isinstance(step, Delegate) for ask in step.steps]
    outer = [step for step in script.steps if isinstance(step, Ask)]

    assert all(len(ask.calls) == len(ask.results) for ask in inner + outer)
