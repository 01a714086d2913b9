"""Random lives of requests: whatever comes, the accounts agree and answers are the plain ones."""

import contextlib
import dataclasses
import subprocess
import sys
import threading
from functools import cache

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentmem.inference import ModelStats
from agentmem.inference.kv_cache.sequence import State
from agentmem.types import FinishReason
from tests.inference.tiny import ask, model_with_blocks, random_ids, tiny_model, tiny_module

MODULE = tiny_module()
ALONE = tiny_model(module=MODULE)
NUM_TOKENS = 10
COUNTERS = [
    field.name
    for field in dataclasses.fields(ModelStats)
    if field.name != "refused_reuse" and not field.name.startswith("kv_")
]


@cache
def text_alone(prompt):
    return ALONE.generate(ask(prompt, NUM_TOKENS)).text


class EngineMachine(RuleBasedStateMachine):
    """Twelve blocks of four tokens, where one request takes up to nine."""

    def __init__(self):
        super().__init__()
        self.model = model_with_blocks(12, module=MODULE, prefill_chunk=6, max_num_seqs=3)
        self.model._engine._admission._share = 0.3
        self.pending = []
        self.results = []
        self.seen = self.model.stats()

    @rule(head=st.integers(0, 2), tail=st.integers(1, 12), priority=st.integers(0, 1))
    def submit(self, head, tail, priority):
        prompt = random_ids(14, seed=head) + random_ids(tail, seed=100 + head)
        request = dataclasses.replace(ask(prompt, NUM_TOKENS), priority=priority)
        self.pending.append((self.model.submit(request), prompt))

    @rule(count=st.integers(1, 8))
    def step(self, count):
        for _ in range(count):
            self.model._engine.step()

    @rule(index=st.integers(0, 9), twice=st.booleans())
    def cancel(self, index, twice):
        if index < len(self.pending):
            one, prompt = self.pending.pop(index)
            one.cancel()
            if twice:
                one.cancel()
            self.results.append(one.result())
            if one.result().finish_reason is FinishReason.ABORT:
                assert text_alone(prompt).startswith(one.result().text)

    @rule(index=st.integers(0, 9))
    def wait(self, index):
        if index < len(self.pending):
            one, prompt = self.pending.pop(index)
            self.results.append(one.result())
            assert one.result().text == text_alone(prompt)

    @rule(head=st.integers(0, 2), num_kept=st.integers(0, 14))
    def discard(self, head, num_kept):
        self.model.discard_prefix(random_ids(14, seed=head), num_kept=num_kept)

    @rule()
    def forget(self):
        self.model.forget(cache_salt="")

    @rule()
    def interrupt_a_pass(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.model._engine._model, "forward", interrupted)
            with contextlib.suppress(KeyboardInterrupt):
                self.model._engine.step()

    @rule()
    def interrupt_the_accounts(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.model._engine._prefixes, "insert", interrupted)
            with contextlib.suppress(KeyboardInterrupt):
                self.model._engine.step()

    @invariant()
    def accounts_agree(self):
        self.model.check()
        usage = self.model.kv_usage()
        assert usage.free + usage.cached + usage.in_use == usage.total == 12
        assert usage.tokens <= usage.in_use * usage.block_size

    @invariant()
    def counters_only_grow(self):
        before, self.seen = self.seen, self.model.stats()
        assert [name for name in COUNTERS if getattr(self.seen, name) < getattr(before, name)] == []
        assert self.seen.prefix_hit_tokens <= self.seen.prefix_query_tokens
        assert self.seen.kv_free + self.seen.kv_cached + self.seen.kv_in_use == 12

    def teardown(self):
        for one, prompt in self.pending:
            self.results.append(one.result())
            assert one.result().text == text_alone(prompt)
        hits = sum(result.usage.cached_tokens for result in self.results)
        assert self.model.stats().prefix_hit_tokens == hits
        assert self.model.kv_usage().in_use == 0


def interrupted(*_, **__):
    raise KeyboardInterrupt


TestEngineMachine = pytest.mark.slow(EngineMachine.TestCase)
TestEngineMachine.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_an_interrupt_ends_the_wait_of_one_and_the_others_go_on(monkeypatch):
    model = tiny_model(module=MODULE)
    prompts = [random_ids(20, seed=n) for n in range(2)]
    other = model.submit(ask(prompts[1], NUM_TOKENS))
    forward = model._engine._model.forward
    calls = []

    def interrupt_at_the_third(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return forward(*args)

    monkeypatch.setattr(model._engine._model, "forward", interrupt_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        model.generate(ask(prompts[0], NUM_TOKENS))

    assert other.result().text == text_alone(prompts[1])
    assert model.kv_usage().in_use == 0
    # What was computed is not lost.
    assert model.generate(ask(prompts[0], NUM_TOKENS)).usage.cached_tokens == 19
    model.check()


def test_a_block_that_is_being_computed_is_hit_by_nobody():
    """Two equal prompts come in one step: the second waits, and then finds it all."""
    model = tiny_model(module=MODULE, prefill_chunk=8)
    first, second = (model.submit(ask(random_ids(30), 4)) for _ in range(2))

    model._engine.step()
    assert second._output.sequence.state is State.WAITING
    results = [first.result(), second.result()]

    assert [result.usage.cached_tokens for result in results] == [0, 28]
    assert results[0].text == results[1].text
    assert model.stats().prefill_tokens == 32


def test_a_preempted_request_counts_what_was_cached_once():
    model = model_with_blocks(12, module=MODULE)
    model._engine._admission._share = 0.0
    pending = [model.submit(ask(random_ids(20 + n, seed=n), NUM_TOKENS)) for n in range(2)]

    results = [one.result() for one in pending]

    assert model.stats().preemptions > 0
    assert [result.usage.cached_tokens for result in results] == [0, 0]
    assert [r.text for r in results] == [text_alone(random_ids(20 + n, seed=n)) for n in range(2)]


@pytest.mark.slow
def test_a_preempted_request_draws_on_as_if_nothing_had_been():
    """Its generator, and what it has said, outlive the blocks."""
    requests = [ask(random_ids(20 + n, seed=n), 12, temperature=1.0, seed=n) for n in range(2)]
    expected = [tiny_model(module=MODULE).generate(request).text for request in requests]
    model = model_with_blocks(12, module=MODULE)
    model._engine._admission._share = 0.0

    pending = [model.submit(request) for request in requests]

    assert [one.result().text for one in pending] == expected
    assert model.stats().preemptions > 0


def test_blocks_that_are_to_be_kept_outlive_newer_ones():
    model = model_with_blocks(16, module=MODULE)
    parent = random_ids(20)
    model.generate(dataclasses.replace(ask(parent, 1), cache_priority=1))

    for seed in range(1, 6):
        model.generate(ask(random_ids(20, seed=seed), 4))

    assert model.generate(ask(parent, 1)).usage.cached_tokens == 19
    model.check()


@pytest.mark.slow
def test_closing_waits_for_the_step_of_another_thread(monkeypatch):
    model = tiny_model(module=MODULE)
    forward = model._engine._model.forward
    inside, go_on = threading.Event(), threading.Event()

    def slow(*args):
        inside.set()
        go_on.wait(10)
        return forward(*args)

    monkeypatch.setattr(model._engine._model, "forward", slow)
    errors = []

    def read():
        try:
            model.generate(ask(random_ids(20), 50))
        except Exception as error:  # noqa: BLE001 - whatever came is looked at below
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    inside.wait(10)
    closer = threading.Thread(target=model.close)
    closer.start()
    go_on.set()
    reader.join(20)
    closer.join(20)

    assert "is closed" in str(errors[0])


@pytest.mark.slow
def test_who_asks_for_usage_is_not_kept_out_by_who_drives():
    model = tiny_model(module=MODULE)
    reader = threading.Thread(target=lambda: model.generate(ask(random_ids(20), 80)))
    reader.start()
    seen = []
    while reader.is_alive():
        seen.append(model.kv_usage().in_use)
    reader.join()

    # Between most steps, and not once when all is over.
    assert len(set(seen)) > 10
    model.check()


@pytest.mark.slow
def test_a_process_that_leaves_in_the_middle_of_an_answer_just_ends():
    program = (
        "from tests.inference.tiny import *\n"
        "model = tiny_model()\n"
        "pending = [model.submit(ask(random_ids(20, seed=n), 100)) for n in range(3)]\n"
        "stream = model.stream(ask(random_ids(9), 100))\n"
        "next(stream), next(pending[0])\n"
        "print('left')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("left\n", "", 0)
