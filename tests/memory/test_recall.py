"""What a prompt recalls, and where it looks: with a retriever that is easy to follow."""

import asyncio
from datetime import timedelta

import pytest

from agentmem.config import Budget
from agentmem.context import Policy
from agentmem.errors import ConfigError, InvalidInputError
from agentmem.memory import Memory
from agentmem.testing import ScriptedModel
from agentmem.types import Tier
from tests.memory.retriever import WordRetriever

FILLER = "one two three four five six seven eight nine ten"


@pytest.fixture
def retriever():
    return WordRetriever()


@pytest.fixture
def opened(url, retriever):
    """Give a memory that recalls, with a policy of the test's choice."""
    memories = []

    def open_memory(**policy):
        memory = Memory.open(
            url,
            model=ScriptedModel(),
            retriever=retriever,
            budget=Budget(context=120, reply=20, retrieved=0.3),
            policy=Policy(summarizer=None, **policy),
        )
        memories.append(memory)
        return memory

    yield open_memory
    for memory in memories:
        memory.close()


@pytest.fixture
def session(opened):
    return opened().session("trip", user="u42")


def fill(conversation, number=12):
    for _ in range(number):
        conversation.append("user", FILLER)
        conversation.append("assistant", "ok")


def recalled(prompt):
    return [span.first for span in prompt.layout if span.tier is Tier.RETRIEVED]


def test_a_prompt_recalls_what_fits_the_last_question(session, retriever):
    session.append("user", "the code is 4711")
    fill(session)
    session.append("user", "what is the code")

    prompt = session.assemble()

    assert retriever.queries[-1].text == "what is the code"
    assert retriever.queries[-1].is_turn is True
    assert recalled(prompt) == [1]
    assert "4711" in prompt.text
    assert session.check() == ()


def test_a_query_of_the_caller_is_looked_for_instead(session, retriever):
    session.append("user", "the code is 4711")
    fill(session)
    session.append("user", "well then")

    prompt = session.assemble(query="code")

    assert recalled(prompt) == [1]
    assert retriever.queries[-1].text == "code"
    assert retriever.queries[-1].is_turn is False
    session.search("code")
    assert retriever.queries[-1].is_turn is False


def test_a_reply_recalls_what_fits_its_own_text(session):
    session.append("user", "the code is 4711")
    fill(session)

    assert recalled(session.reply("tell me the code").prompt) == [1]
    assert recalled(session.reply("anything else", query="code").prompt) == [1]
    assert recalled(session.reply("tell me the code", hits=()).prompt) == []


def test_what_the_window_has_in_full_is_not_looked_for(session, retriever):
    session.append("user", "the code is 4711")
    session.append("user", "what is the code")

    session.assemble()

    assert retriever.queries == []


def test_without_a_share_for_it_nothing_is_looked_for(session, retriever):
    fill(session)

    session.assemble(budget=Budget(context=120, reply=20, retrieved=0))

    assert retriever.queries == []


def test_in_a_tool_loop_the_question_stays_the_users(session, retriever):
    fill(session)
    session.append("user", "what is the code")
    session.append("assistant", "I look for it")

    session.assemble()

    assert retriever.queries[-1].text == "what is the code"


def test_a_very_long_question_is_looked_for_by_its_ends(session, retriever):
    fill(session)
    session.append("user", "begin " + "x " * 10_000 + "end")

    session.assemble()

    text = retriever.queries[-1].text
    assert len(text) < 5_000
    assert text.startswith("begin")
    assert text.endswith("end")


def test_a_subtask_recalls_its_ancestors_up_to_the_forks_and_no_sibling(session):
    session.append("user", "early code")
    first = session.subtask("first")
    first.append("user", "sibling code")
    session.append("user", "later code")
    second = session.subtask("second")
    inner = second.subtask("inner")
    inner.append("user", "inner code")
    session.append("user", "too late code")

    found = [hit.stored.message.text for hit in inner.search("code")]

    assert sorted(found) == ["early code", "inner code", "later code"]
    assert all(hit.is_local for hit in inner.search("code"))


def test_a_subtask_that_inherits_only_pins_recalls_only_its_own(session):
    session.append("user", "secret code")
    task = session.subtask("t", inherit="pins")
    task.append("user", "own code")

    assert [hit.stored.message.text for hit in task.search("code")] == ["own code"]


def test_a_subtask_with_a_summary_recalls_what_it_sums_up(session):
    session.append("user", "the code is 4711")
    fill(session)
    with session.subtask("t", inherit="summary") as task:
        task.append("user", "what is the code")
        prompt = task.assemble()

        assert "4711" in prompt.text
        assert task.check() == ()


def test_other_sessions_are_recalled_only_if_the_policy_says_so(opened):
    memory = opened(recall_sessions=True)
    memory.session("old", user="u42").append("user", "the code is 4711")
    memory.session("old", user="stranger").append("user", "the code is 9999")
    asking = memory.session("new", user="u42")
    asking.append("user", "what is the code")

    prompt = asking.assemble()

    assert "4711" in prompt.text
    assert "9999" not in prompt.text
    assert asking.check() == ()
    assert "4711" not in opened().session("new", user="u42").assemble().text


def test_a_search_goes_no_further_than_asked(session, opened):
    opened().session("old", user="u42").append("user", "old code")
    session.append("user", "new code")

    here = session.search("code")
    everywhere = session.search("code", everywhere=True)

    assert [hit.stored.message.text for hit in here] == ["new code"]
    assert {(hit.stored.message.text, hit.is_local) for hit in everywhere} == {
        ("old code", False),
        ("new code", True),
    }
    assert len(session.search("code", limit=1, everywhere=True)) == 1


@pytest.mark.parametrize("query", ["", "  \n", None, 7])
def test_a_search_for_nothing_is_refused(session, query):
    with pytest.raises(InvalidInputError, match="query must be a non-blank string"):
        session.search(query)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "3"])
def test_an_impossible_limit_is_refused(session, limit):
    with pytest.raises(InvalidInputError, match="limit"):
        session.search("code", limit=limit)


def test_a_query_and_hits_are_one_too_many(session):
    with pytest.raises(InvalidInputError, match="not both"):
        session.assemble(query="code", hits=())


def test_without_a_retriever_a_query_is_an_error_that_helps(memory):
    session = memory.session("trip")
    session.append("user", "hello")

    for ask in (lambda: session.assemble(query="x"), lambda: session.search("x")):
        with pytest.raises(ConfigError, match="retriever="):
            ask()
    assert memory.wait_for_index()


def test_a_retriever_is_told_what_is_stored_deleted_and_closed(opened, retriever):
    memory = opened()
    session = memory.session("trip", user="u42")
    said = [session.append("user", text).id for text in "abc"]
    session.delete_message(1)
    memory.delete("trip", user="u42")
    memory.session("other", user="u42").append("user", "x")
    memory.delete_user("u42")
    memory.session("third", user="u43").append("user", "x")
    memory.purge(timedelta(0))
    memory.close()

    users = [user for user, _ in retriever.forgotten]
    assert retriever.num_added == 5
    assert users == ["u42", "u42", "u42", "u43"]
    assert retriever.forgotten[0][1] == (said[0],)
    assert retriever.forgotten[1][1] == tuple(said)
    assert [len(ids) for _, ids in retriever.forgotten] == [1, 3, 1, 1]
    assert retriever.is_closed


async def _ask(session):
    await session.aappend("user", "the code is 4711")
    found = await session.asearch("code")
    reply = await session.areply("the code?", query="code")
    return found, reply


def test_the_coroutine_forms_search_and_recall_too(session):
    found, reply = asyncio.run(_ask(session))

    assert [hit.stored.position for hit in found] == [1]
    assert reply.prompt.head == 2


def test_a_retriever_is_told_of_what_is_promoted_and_imported(opened, retriever, tmp_path):
    memory = opened()
    session = memory.session("trip", user="u42")
    with session.subtask("t") as task:
        task.promote("the code is 4711")
    promoted = retriever.num_added
    memory.export(tmp_path / "all", user="u42")

    memory.load(tmp_path / "all", user="u43")

    assert (promoted, retriever.num_added) == (1, 2)
    assert memory.find("trip", user="u43").search("code")
