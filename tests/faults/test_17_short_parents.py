"""A subtask that inherits a summary is shown a short conversation whole."""

import pytest

from agentmem import Budget, Memory, Policy
from agentmem.context import ExtractiveSummarizer, ModelSummarizer
from agentmem.context.compaction import SummaryCompactor
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import BranchId, Role, Tier, TruncationReason
from tests.builders import say, stored, words

FIRST = "My name is Bob and I owe 500 EUR to the bank in Graz."
SHORT = [("user", FIRST), ("assistant", "Noted, Bob owes 500 EUR."), ("user", "Go on.")]
LONGER = [*SHORT, ("assistant", "I looked at the letter of the bank."), ("user", "Pay by May.")]
SUMMARIZERS = {
    "sentences": Policy,
    "model": lambda: Policy(summarizer=ModelSummarizer(ScriptedModel(["In short."] * 9))),
}


def opened(context=4096, policy=None):
    budget = Budget(context=context, reply=20)
    return Memory.open("sqlite://", counter=WordCounter(), budget=budget, policy=policy or Policy())


def shown(task):
    task.append("user", "do it")
    prompt = task.assemble()
    assert prompt.messages[-1].text == "do it"
    assert task.assemble().token_ids == prompt.token_ids
    assert task.check() == ()
    return prompt


@pytest.mark.parametrize("context", [520, 1024, 4096])
@pytest.mark.parametrize("summarizer", SUMMARIZERS)
@pytest.mark.parametrize("num_said", [1, 2, 3])
def test_what_is_shorter_than_any_summary_is_quoted_whole(context, summarizer, num_said):
    with opened(context, SUMMARIZERS[summarizer]()) as memory:
        session = memory.session("s")
        for role, text in SHORT[:num_said]:
            session.append(role, text)
        with session.subtask("x", inherit="summary") as task:
            prompt = shown(task)

    lines = prompt.messages[0].text.split("\n")[1:]
    assert prompt.messages[0].role is Role.USER
    assert [line.split("] ", 1)[1] for line in lines] == [
        f"{role}: {text}" for role, text in SHORT[:num_said]
    ]
    assert prompt.layout[0].tier is Tier.SUMMARY
    assert prompt.tokens_by_tier[Tier.SUMMARY] <= Budget(context=context, reply=20).prompt * 0.2
    assert prompt.truncations[0].reason is TruncationReason.NOT_INHERITED


def test_quotations_that_fit_whole_are_not_cut_to_half():
    with opened() as memory:
        session = memory.session("s")
        for role, text in LONGER:
            session.append(role, text)
        with session.subtask("x", inherit="summary") as task:
            text = shown(task).messages[0].text

    for _, said in LONGER:
        assert f": {said}" in text


@pytest.mark.parametrize("text", ["", "word " * 90])
def test_what_a_summarizer_makes_nothing_of_is_quoted(text):
    policy = Policy(summarizer=ModelSummarizer(ScriptedModel([text] * 9)))
    with opened(policy=policy) as memory:
        session = memory.session("s")
        for role, said in LONGER:
            session.append(role, said)
        with session.subtask("x", inherit="summary") as task:
            text = shown(task).messages[0].text

    for _, said in LONGER:
        assert f": {said}" in text


def test_a_model_still_sums_up_what_is_long_enough():
    with opened(policy=SUMMARIZERS["model"]()) as memory:
        session = memory.session("s")
        for role, text in LONGER * 3:
            session.append(role, text)
        with session.subtask("x", inherit="summary") as task:
            text = shown(task).messages[0].text

    assert text.split("\n")[1:] == ["[1-15] summary (scripted): In short."]


@pytest.mark.parametrize("room", [48, 90, 600])
def test_what_came_after_a_summary_is_quoted_beside_it(room):
    compactor = SummaryCompactor(ExtractiveSummarizer(), lambda text: len(text.split()), room)
    long = stored(*(say("user", f"Fact {i} is {words(30, f'w{i}-')}.") for i in range(1, 9)))
    summaries = compactor.compact(BranchId(1), (), long)
    new = stored(say("user", "I owe 500 EUR."), say("assistant", "Noted."), start=9)

    assert compactor.compact(BranchId(1), summaries, new) == summaries
    more = compactor.compact(BranchId(1), summaries, new, may_quote=True)

    assert more[-1].text.startswith("[9")
    assert "user: I owe 500 EUR." in more[-1].text
    assert sum(len(one.text.split()) for one in more) <= room


def test_many_short_messages_stay_within_the_tier():
    with opened(400) as memory:
        session = memory.session("s")
        for number in range(15):
            session.append("user", f"go {number}")
        with session.subtask("x", inherit="summary") as task:
            prompt = shown(task)

    assert "user: go" in prompt.messages[0].text
    assert (
        sum(len(s.text.split()) for s in prompt.summaries) <= Budget(context=400, reply=20).prompt
    )


def test_a_window_that_slides_quotes_nothing_in_place_of_a_summary():
    with opened(300) as memory:
        session = memory.session("s")
        for number in range(40):
            session.append("user", f"go {number}")
            session.append("assistant", "ok then")
            for one in session.assemble().summaries:
                assert len(one.text.split()) < 60


def test_a_subtask_of_a_subtask_is_shown_what_its_parent_was():
    with opened() as memory:
        session = memory.session("s")
        session.append("user", FIRST)
        with session.subtask("x", inherit="summary") as task:
            task.append("user", "look it up")
            task.assemble()
            with task.subtask("y", inherit="summary") as inner:
                text = shown(inner).messages[0].text

    assert f"user: {FIRST}" in text
    assert "user: look it up" in text


def test_no_summarizer_quotes_nothing():
    with opened(policy=Policy(summarizer=None)) as memory:
        session = memory.session("s")
        session.append("user", FIRST)
        with session.subtask("x", inherit="summary") as task:
            assert [m.text for m in shown(task).messages] == ["do it"]
