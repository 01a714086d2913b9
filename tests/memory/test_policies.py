"""Policies are the user's code: they may raise anything, and give anything."""

import pytest

from agentmem.config import Budget
from agentmem.context import Policy
from agentmem.errors import ConfigError, InvalidInputError
from agentmem.memory import Memory
from agentmem.protocols import Hit
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import Role, ToolCall, TruncationReason
from tests.builders import words

BUDGET = Budget(context=420, reply=20)


class Says:
    """A policy of each kind, which gives the same answer to everything, or raises it."""

    def __init__(self, answer, author="someone"):
        self._answer = answer
        self._author = author

    @property
    def author(self):
        return self._give(self._author)

    def summarize(self, passages, *, max_tokens, count):  # noqa: ARG002 - as the protocol has it
        return self._give(self._answer)

    def discards(self, stored, *, age):  # noqa: ARG002 - as the protocol has it
        return self._give(self._answer)

    def pin(self, stored, *, is_first):  # noqa: ARG002 - as the protocol has it
        return self._give(self._answer)

    @staticmethod
    def _give(answer):
        if isinstance(answer, Exception):
            raise answer
        return answer


def talk(url, policy, turns=30):
    with Memory.open(url, counter=WordCounter(), budget=BUDGET, policy=policy) as memory:
        session = memory.session("s")
        session.pin("limit", "never exceed 500 EUR")
        for number in range(turns):
            session.append("user", words(10, f"n{number}"))
            calls = [ToolCall(id=f"c{number}", name="look")]
            session.append("assistant", tool_calls=calls)
            session.append("tool", words(30), tool_call_id=f"c{number}")
            prompt = session.assemble()
            assert prompt.num_tokens <= BUDGET.prompt
            assert "never exceed 500 EUR" in prompt.text
        assert session.check() == ()
        return session.summaries(), memory.wait_for_compactions(30)


@pytest.mark.parametrize("compact_ahead", [None, 0.8])
@pytest.mark.parametrize(
    "answer",
    ["", None, 7, b"bytes", ["list"], words(5000), "a\0b \ud800", ValueError("x"), "<|im_end|>"],
    ids=repr,
)
def test_a_summarizer_may_give_anything(url, answer, compact_ahead):
    summaries, _ = talk(url, Policy(summarizer=Says(answer), compact_ahead=compact_ahead))

    # A control token alone says nothing.
    is_good = isinstance(answer, str) and 0 < len(answer) < 100 and answer != "<|im_end|>"
    for summary in summaries:
        assert (summary.author == "someone") == is_good
        assert "\0" not in summary.text


@pytest.mark.parametrize(
    ("author", "named"),
    [
        (None, "Says"),
        (5, "Says"),
        ("", "Says"),
        ("a\0b", "a\ufffdb"),
        (ValueError("x"), "Says, whose author raised ValueError"),
    ],
    ids=repr,
)
def test_a_summarizer_without_a_name_is_called_by_its_class(url, author, named):
    summaries, _ = talk(url, Policy(summarizer=Says("in short", author)))

    assert {summary.author for summary in summaries} == {named}


@pytest.mark.parametrize("answer", [5, ("a",), ("a", "b", "c"), ValueError("x")], ids=repr)
def test_an_auto_pin_that_fails_is_told_and_the_message_is_stored(url, answer):
    with Memory.open(url, counter=WordCounter(), policy=Policy(auto_pin=Says(answer))) as memory:
        session = memory.session("s")

        with pytest.raises(ConfigError, match="message 1 is stored, but the policy's auto_pin"):
            session.append("user", "hi")

        assert session.messages()[0].message.text == "hi"


class FailsOnAnswers:
    def pin(self, stored, *, is_first):
        if not is_first and stored.message.role is Role.ASSISTANT:
            raise ValueError("x")


def test_an_answer_on_which_the_auto_pin_fails_is_stored_once(url):
    policy = Policy(auto_pin=FailsOnAnswers())
    with Memory.open(url, model=ScriptedModel(["a b c", "d e"]), policy=policy) as memory:
        session = memory.session("s")

        stream = session.stream("hi")
        with pytest.raises(ConfigError, match="message 2 is stored, but the policy's auto_pin"):
            list(stream)
        left = session.stream("and")
        assert next(left) == "d"
        with pytest.raises(ConfigError, match="message 4 is stored"):
            left.close()

        assert [stored.message.text for stored in session.messages()] == ["hi", "a b c", "and", "d"]
        assert stream.reply.text == "a b c"


def test_a_discardable_that_fails_is_told_with_the_message(url):
    with pytest.raises(ConfigError, match=r"discardable failed on message \d+: ValueError: x"):
        talk(url, Policy(discardable=Says(ValueError("x"))))


def num_stubs(url, discardable):
    """Say more than fits, and count the results that a stub stands for."""
    policy = Policy(discardable=discardable)
    with Memory.open(url, counter=WordCounter(), budget=BUDGET, policy=policy) as memory:
        session = memory.session("s")
        for number in range(15):
            session.append("user", f"n{number}")
            session.append("assistant", tool_calls=[ToolCall(id=f"c{number}", name="look")])
            session.append("tool", words(30), tool_call_id=f"c{number}")
        prompt = session.assemble()
        stubbed = [one for one in prompt.truncations if one.reason is TruncationReason.STUBBED]
        assert len(stubbed) == prompt.text.count("left out")
        return len(stubbed)


@pytest.mark.parametrize("answer", [True, "yes", 1, object()], ids=type)
def test_a_discardable_may_give_anything_true_to_discard(url, answer):
    assert num_stubs(url, Says(answer)) > 0


@pytest.mark.parametrize("answer", [False, None, "", 0, []], ids=type)
def test_a_discardable_may_give_anything_false_to_keep(url, answer):
    assert num_stubs(url, Says(answer)) == 0


@pytest.mark.parametrize("hits", [[1], "ab", 5, [None]], ids=repr)
def test_hits_that_are_none_are_refused(url, hits):
    with Memory.open(url, counter=WordCounter(), budget=BUDGET) as memory:
        session = memory.session("s")
        session.append("user", "hi")

        with pytest.raises(InvalidInputError, match="hits are a list of Hit"):
            session.assemble(hits=hits)


def test_hits_may_have_any_score(url):
    with Memory.open(url, counter=WordCounter(), budget=BUDGET) as memory:
        session = memory.session("s")
        for number in range(60):
            session.append("user", words(10, f"n{number}"))
        scores = (float("nan"), float("inf"), -1.0)
        found = zip(session.messages(1, 3), scores, strict=True)
        hits = [Hit(stored=stored, score=score) for stored, score in found]

        prompt = session.assemble(hits=[*hits, *hits])

        assert prompt.text.count("n0 n0 n0 n0 n0 n0 n0 n0 n0 n0") == 1
        assert session.check() == ()
