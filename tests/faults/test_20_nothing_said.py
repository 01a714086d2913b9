"""No counter is asked for a list that a strict template refuses, also where little was said."""

import pytest

from agentmem import Budget, Memory, ToolCall
from agentmem.errors import InvalidInputError
from agentmem.protocols import Hit
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import Role, Tier, common_prefix
from tests.faults.legal import faults


class Strict(WordCounter):
    """A counter that takes what a count API takes, and nothing else."""

    def render(self, messages, *, add_generation_prompt=True):
        wrong = faults(messages)
        if wrong:
            raise ValueError(f"400: {wrong}")
        return super().render(messages, add_generation_prompt=add_generation_prompt)


class StrictModel(ScriptedModel):
    def __init__(self):
        super().__init__()
        self.counter = Strict()


@pytest.fixture
def memory():
    with Memory.open("sqlite://", model=StrictModel()) as opened:
        yield opened


@pytest.fixture
def session(memory):
    return memory.session("s")


@pytest.mark.parametrize("start", ["empty", "pinned", "subtask", "wordless"])
@pytest.mark.parametrize("ask", ["assemble", "compact", "reply"])
def test_a_prompt_of_nothing_is_an_error_that_says_so(session, start, ask):
    branch = session
    if start != "empty":
        session.pin("role", "You are a clerk.")
    if start == "subtask":
        session.append("user", "hello")
        branch = session.subtask("t", inherit="pins")
    if start == "wordless":
        session.append("assistant", "")

    with pytest.raises(InvalidInputError, match="there is no message to "):
        getattr(branch, ask)()


def test_pins_are_counted_without_a_list_of_the_system_message_alone(session):
    session.pin("role", "You are a clerk.")
    session.append("user", "hello there")

    prompt = session.assemble()

    assert prompt.tokens_by_tier[Tier.PINNED] == 6
    assert prompt.tokens_by_tier[Tier.CURRENT] == 4
    session.pin("limit", "Be short.")
    assert session.assemble().reuse.common_tokens == 0


def test_what_was_recalled_from_elsewhere_is_something_to_show(memory, session):
    other = memory.session("other")
    said = other.append("user", "my seat is 17A")

    prompt = session.assemble(hits=[Hit(stored=said, score=1.0, is_local=False)])

    assert [message.role for message in prompt.messages] == [Role.USER]


@pytest.mark.slow
@pytest.mark.parametrize("context", [80, 160, 900])
@pytest.mark.parametrize("summary", [0, 0.3])
def test_a_strict_counter_serves_long_sessions_with_tools_and_subtasks(context, summary):
    budget = Budget(context=context, reply=10, summary=summary)
    with Memory.open("sqlite://", model=StrictModel(), budget=budget) as memory:
        session = memory.session("s")
        session.pin("role", "You are a clerk.")
        before = None
        for number in range(25):
            session.append("user", f"question {number} about boats and trains")
            calls = [ToolCall(id=f"{one}{number}", name="look") for one in "ab"]
            session.append("assistant", tool_calls=calls)
            session.assemble()
            session.append("tool", "[found b] " * (number % 5), tool_call_id=f"b{number}")
            session.assemble()
            session.append("tool", "[found a] " * (number % 7), tool_call_id=f"a{number}")
            prompt = session.assemble()
            assert faults(prompt.messages, to_answer=True) == []
            session.append("assistant", f"answer {number}")
            if number % 9 == 0:
                with session.subtask("t", inherit=["all", "pins", "summary"][number % 3]) as task:
                    task.reply("work")
                    task.promote("found it")
            last = session.assemble()
            if before is not None:
                assert prompt.reuse.common_tokens <= len(prompt.token_ids)
            shared = common_prefix(prompt.token_ids, last.token_ids)
            if number % 9:
                assert last.reuse.common_tokens <= shared
            before = last
        assert session.check() == ()
