"""What was said is said in another way, or answered anew: the old line stays, and is not seen."""

import asyncio
import pickle

import pytest

from agentmem import Budget, Memory, Policy, ToolCall
from agentmem.context import PinTask
from agentmem.errors import (
    ConflictError,
    InvalidInputError,
    SessionNotFoundError,
)
from agentmem.retrieval import HybridRetriever
from agentmem.store import downgrade, upgrade
from agentmem.testing import ScriptedModel, WordCounter
from tests.store.conftest import (  # noqa: F401 - fixtures
    new_postgres_url,
    new_url,
    postgres,
    postgres_url,
    url,
)
from tests.store.invariants import check

BUDGET = Budget(context=300, reply=40)


@pytest.fixture
def model():
    return ScriptedModel([f"answer {number}" for number in range(5000)])


@pytest.fixture
def memory(url, model):  # noqa: F811 - a fixture
    with Memory.open(url, model=model, budget=BUDGET, retriever=HybridRetriever()) as opened:
        yield opened
        for info in opened.sessions(user="u"):
            for audit in opened.find(info.key, user="u").audit():
                assert audit.problems == ()
        check(opened._store)


@pytest.fixture
def session(memory):
    return memory.session("s", user="u")


def texts(line):
    return [stored.message.text for stored in line.messages()]


def shown(prompt):
    return [message.text for message in prompt.messages]


def say_four(session):
    session.append("user", "one")
    session.append("assistant", "uno")
    session.append("user", "two")
    session.append("assistant", "dos")


def test_an_edited_message_begins_a_line_that_the_session_goes_on_with(session, memory):
    say_four(session)
    before = session.branch

    edited = session.edit(3, "three")

    assert (edited.position, edited.message.role) == (3, "user")
    assert texts(session) == ["one", "uno", "three"]
    assert shown(session.assemble()) == ["one", "uno", "three"]
    assert texts(memory.session("s", user="u")) == texts(session)
    assert [stored.message.text for stored in session.history(before.id).messages()] == [
        *("one", "uno", "two", "dos")
    ]
    assert session.append("assistant", "tres").position == 4


@pytest.mark.parametrize("position", [1, 2, 3, 4])
def test_a_message_of_any_role_and_place_can_be_edited(session, position):
    say_four(session)
    roles = [stored.message.role for stored in session.messages()]

    session.edit(position, "other")

    assert texts(session) == [*["one", "uno", "two", "dos"][: position - 1], "other"]
    assert [stored.message.role for stored in session.messages()] == roles[:position]
    assert [line.name for line in session.branches()] == ["main", "edit"]


@pytest.mark.slow
def test_an_edit_of_a_result_answers_the_same_call(session):
    session.append("user", "look")
    session.append("assistant", tool_calls=[ToolCall(id="a", name="f"), ToolCall(id="b", name="f")])
    session.append("tool", "wrong", tool_call_id="a")
    session.append("tool", "fine", tool_call_id="b")

    session.edit(3, "right")
    session.append("tool", "fine too", tool_call_id="b")

    assert texts(session)[2:] == ["right", "fine too"]
    assert session.check() == ()


def test_calls_that_are_open_at_the_fork_are_open_in_the_line(session):
    session.append("user", "look")
    session.append("assistant", tool_calls=[ToolCall(id="a", name="f"), ToolCall(id="b", name="f")])
    session.append("tool", "old", tool_call_id="a")
    session.append("tool", "old", tool_call_id="b")

    session.branch(at=3)
    with pytest.raises(ValueError, match="'b'"):
        session.append("tool", "new", tool_call_id="c")
    session.append("tool", "new", tool_call_id="b")

    assert texts(session)[2:] == ["old", "new"]


@pytest.mark.parametrize(
    ("position", "content", "error"),
    [
        (0, "x", SessionNotFoundError),
        (5, "x", SessionNotFoundError),
        (3, " ", InvalidInputError),
        (3, "\x00", InvalidInputError),
        ("3", "x", InvalidInputError),
        (3, 7, InvalidInputError),
    ],
)
def test_a_wrong_edit_leaves_everything_as_it_was(session, position, content, error):
    say_four(session)

    with pytest.raises(error):
        session.edit(position, content)

    assert len(session.branches()) == 1
    assert texts(session) == ["one", "uno", "two", "dos"]


def test_a_line_can_be_begun_at_a_position_and_left_again(session, memory):
    say_four(session)
    main = session.branch

    line = session.branch(at=2, name="other way")
    session.append("user", "four")

    assert (line.name, line.forked_at, line.is_line) == ("other way", 2, True)
    assert texts(session) == ["one", "uno", "four"]
    assert session.switch(main.id) == main
    assert texts(session) == ["one", "uno", "two", "dos"]
    assert texts(memory.session("s", user="u")) == ["one", "uno", "two", "dos"]
    session.switch(line.id)
    assert texts(session)[-1] == "four"


@pytest.mark.parametrize("at", [-1, 5, "2", None, 2.0, True])
def test_a_line_begins_at_a_position_that_is_there(session, at):
    say_four(session)

    with pytest.raises(InvalidInputError):
        session.branch(at=at)

    assert len(session.branches()) == 1


def test_what_tells_of_a_line_is_a_value(session):
    say_four(session)
    line = session.branch

    assert line == session.branches()[0]
    assert session.branches()[0] == line
    assert hash(line) == hash(session.branches()[0])
    assert pickle.loads(pickle.dumps(line)) == line  # noqa: S301 - written just now
    assert (line.head, line.name, line.parent) == (4, "main", None)


def test_regenerate_answers_anew_and_repeats_the_prompt(session):
    first = session.reply("hello")

    second = session.regenerate()

    assert (first.text, second.text) == ("answer 0", "answer 1")
    assert second.prompt.token_ids == first.prompt.token_ids
    assert second.prompt.reuse.broken_by is None
    assert texts(session) == ["hello", "answer 1"]
    assert shown(session.assemble())[-1] == "answer 1"


def test_regenerate_takes_back_the_whole_turn_or_what_stands_from_a_position_on(session):
    session.append("user", "look")
    session.append("assistant", tool_calls=[ToolCall(id="a", name="f")])
    session.append("tool", "found", tool_call_id="a")
    session.append("assistant", "so it is")

    part = session.regenerate(at=4)
    assert texts(session) == ["look", "", "found", part.text]
    whole = session.regenerate()

    assert texts(session) == ["look", whole.text]


def test_regenerate_takes_the_place_of_half_an_answer(url):  # noqa: F811 - a fixture
    class Fails(ScriptedModel):
        fails = True

        def stream(self, request):
            chunks = list(super().stream(request))
            yield from chunks[:1] if self.fails else chunks
            if self.fails:
                raise RuntimeError("the line went dead")

    model = Fails(["half an answer", "half again", "the whole one"])
    with Memory.open(url, model=model) as memory:
        session = memory.session("s")
        with pytest.raises(RuntimeError):
            session.reply("hello")
        model.fails = False

        reply = session.regenerate()

        assert shown(reply.prompt) == ["hello"]
        assert texts(session) == ["hello", reply.text]


def test_a_regenerate_that_says_nothing_leaves_the_session_where_it_was(url):  # noqa: F811
    class Fails(ScriptedModel):
        def stream(self, request):  # noqa: ARG002 - as the protocol has it
            raise RuntimeError("no line")

    with Memory.open(url, model=ScriptedModel(["fine"])) as memory:
        memory.session("s").reply("hello")
        memory._model = Fails()
        session = memory.session("s")

        with pytest.raises(RuntimeError):
            session.regenerate()

        assert texts(session) == ["hello", "fine"]
        assert texts(memory.session("s")) == ["hello", "fine"]
        assert len(session.branches()) == 1


def test_without_an_answer_regenerate_answers_and_without_a_question_it_says_so(session):
    with pytest.raises(InvalidInputError, match="nothing to answer"):
        session.regenerate()
    session.append("assistant", "welcome")
    with pytest.raises(InvalidInputError, match="nothing to answer"):
        session.regenerate()
    for at in (0, 1, 9, "2", True):
        with pytest.raises(InvalidInputError):
            session.regenerate(at=at)
    session.append("user", "hello")

    session.regenerate()

    assert texts(session) == ["welcome", "hello", "answer 0"]
    assert len(session.branches()) == 1


def test_lines_have_coroutine_forms(session):
    async def talk():
        first = await session.areply("hello")
        second = await session.aregenerate(priority=1, timeout_s=60)
        await session.aedit(1, "hi")
        third = await session.areply()
        line = await session.abranch(at=1)
        await session.aswitch(session.info.main)
        await session.adelete_line(line.id)
        return first.text, second.text, third.text

    assert asyncio.run(talk()) == ("answer 0", "answer 1", "answer 2")
    assert texts(session) == ["hello", "answer 0"]


def test_a_cancelled_regenerate_is_settled(session):
    async def talk():
        await session.areply("hello")
        task = asyncio.create_task(session.aregenerate())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(talk())

    assert texts(session)[0] == "hello"
    assert all(line.head > line.forked_at for line in session.branches())


def test_the_old_line_is_neither_recalled_nor_found(session, memory):
    session.append("user", "My passport number is K1234567.")
    session.append("assistant", "Noted the passport number K1234567.")
    session.edit(1, "My passport is at home.")
    session.append("assistant", "Good.")
    for number in range(60):
        session.append("user", f"Tell me about train {number}.")
        session.append("assistant", f"Train {number} is long.")

    found = session.search("passport number", limit=50)
    prompt = session.assemble(query="passport number")
    other = memory.session("other", user="u")
    elsewhere = other.search("passport number", limit=50, everywhere=True)

    for hits in (found, elsewhere):
        assert not any("K1234567" in hit.stored.message.text for hit in hits)
        assert any("at home" in hit.stored.message.text for hit in hits)
    assert "K1234567" not in prompt.text
    assert "at home" in prompt.text


def test_a_subtask_of_a_line_sees_that_line_and_hands_back_to_it(session):
    say_four(session)
    session.edit(3, "three")
    session.append("assistant", "tres")

    with session.subtask("t") as task:
        assert shown(task.assemble()) == ["one", "uno", "three", "tres"]
        task.append("user", "work")
        task.promote("done")

    assert texts(session)[-1] == "done"
    session.edit(4, "cuatro")
    assert session.resume_subtask(task.branch.id)._depth == 1
    with pytest.raises(SessionNotFoundError):
        session.resume_subtask(session.branch.id)
    with pytest.raises(SessionNotFoundError):
        session.switch(task.branch.id)
    with pytest.raises(SessionNotFoundError):
        session.delete_subtask(session.branch.id)


def test_a_subtask_branches_off_before_a_call_that_the_line_inherits(session):
    session.append("user", "look")
    session.append("assistant", tool_calls=[ToolCall(id="a", name="f")])
    session.append("tool", "old", tool_call_id="a")
    session.branch(at=2)

    task = session.subtask("t")

    assert task.branch.forked_at == 1
    task.append("user", "work")
    assert task.check() == ()


def test_a_line_has_the_task_of_what_it_sees(url):  # noqa: F811 - a fixture
    policy = Policy(auto_pin=PinTask())
    with Memory.open(url, counter=WordCounter(), policy=policy) as memory:
        session = memory.session("s")
        say_four(session)

        session.edit(3, "three")
        assert [pin.text for pin in session.pins()] == ["one"]
        session.edit(1, "another task")
        assert [pin.text for pin in session.pins()] == ["another task"]
        session.unpin("task")
        assert session.pins() == ()
        session.switch(session.info.main)

        assert [pin.text for pin in session.pins()] == ["one"]


def test_a_repeated_append_is_known_on_a_line_that_sees_the_first(session):
    session.append("user", "one", client_key="k1")
    session.append("assistant", "uno")
    session.append("user", "two", client_key="k2")
    session.edit(3, "three")

    again = session.append("user", "one", client_key="k1")
    session.append("user", "two", client_key="k2")

    assert again.position == 1
    assert texts(session) == ["one", "uno", "three", "two"]


def test_lines_survive_an_export(session, memory, tmp_path):
    say_four(session)
    session.edit(3, "three")
    memory.export(tmp_path / "e.jsonl", user="u")

    memory.load(tmp_path / "e.jsonl", user="v")

    copy = memory.session("s", user="v")
    assert texts(copy) == ["one", "uno", "three"]
    copy.switch(copy.info.main)
    assert texts(copy) == ["one", "uno", "two", "dos"]


def test_a_line_is_deleted_unless_the_session_is_on_it(session):
    say_four(session)
    main = session.branch
    line = session.branch(at=2)
    session.append("user", "three")
    inner = session.branch(at=3)

    for wrong, error in (
        (main.id, InvalidInputError),
        (line.id, ConflictError),
        (inner.id, ConflictError),
        (99, SessionNotFoundError),
    ):
        with pytest.raises(error):
            session.delete_line(wrong)
    session.switch(main.id)
    session.delete_line(line.id)

    assert [one.id for one in session.branches()] == [main.id]


def test_a_message_deleted_on_one_line_is_gone_from_all_that_see_it(session):
    say_four(session)
    session.edit(3, "three")

    session.delete_message(1)

    assert texts(session)[0] == "[deleted]"
    assert session.switch(session.info.main).is_line
    assert texts(session)[0] == "[deleted]"


def test_an_answer_goes_to_the_line_that_was_asked(session):
    say_four(session)
    main = session.branch.id
    stream = session.stream("go on")
    next(stream)
    session.edit(1, "begin again")
    for _ in stream:
        pass

    assert texts(session) == ["begin again"]
    session.switch(main)
    assert texts(session)[-2:] == ["go on", stream.reply.text]


@pytest.mark.slow
def test_what_was_and_what_left_is_told_of_the_line(session):
    for number in range(40):
        session.append("user", f"question number {number} " * 4)
        session.append("assistant", f"reply number {number} " * 4)
        session.assemble()
    session.edit(61, "another question")
    prompt = session.assemble()

    assert prompt.reuse.common_tokens > 0
    assert session.at(60).messages() == session.messages()[:60]
    assert session.truncations()
    assert session.check() == ()
    assert prompt.layout[-1].last == 61


def test_a_database_of_before_has_its_main_line(new_url):  # noqa: F811 - a fixture
    with Memory.open(new_url, counter=WordCounter()) as memory:
        say_four(memory.session("s"))
    downgrade(new_url, "0006")
    upgrade(new_url)
    with Memory.open(new_url, counter=WordCounter()) as memory:
        session = memory.session("s")
        assert session.branch.is_line
        session.edit(3, "three")

        assert texts(session) == ["one", "uno", "three"]
