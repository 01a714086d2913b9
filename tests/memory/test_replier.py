from agentmem import Budget, Memory, PinTask, Policy
from agentmem.memory.replier import ServedPrompts
from agentmem.testing import ScriptedModel, WordCounter
from tests.builders import words


def test_of_prompts_that_go_on_from_each_other_only_the_longest_is_recorded():
    served = ServedPrompts()

    for token_ids in ((1, 2), (1, 2, 3), (1, 9)):
        served.add(token_ids)

    assert served.token_ids == [(1, 2, 3), (1, 9)]


def test_a_partial_answer_does_not_use_up_the_key_of_its_question(tmp_path):
    model = ScriptedModel(["one two three", "all of it"])
    with Memory.open(f"sqlite:///{tmp_path}/m.db", model=model) as memory:
        session = memory.session("s")
        with session.stream("why?", client_key="k") as stream:
            next(stream)

        reply = session.reply("why?", client_key="k")

        assert reply.text == "all of it"
        assert session.reply("why?", client_key="k").text == "all of it"


def test_the_first_message_of_a_subtask_is_its_task(tmp_path):
    url = f"sqlite:///{tmp_path}/m.db"
    with Memory.open(url, counter=WordCounter(), policy=Policy(auto_pin=PinTask())) as memory:
        session = memory.session("s")
        session.append("user", "plan a trip")
        subtask = session.subtask("hotel")

        subtask.append("user", "find a hotel")

        assert "find a hotel" in {pin.text for pin in subtask.pins()}


def test_a_subtask_begins_as_its_parent_was_at_the_fork(tmp_path):
    """The parent's window slides after the fork, before the head of the second subtask."""
    budget = Budget(context=120, reply=10)
    with Memory.open(f"sqlite:///{tmp_path}/m.db", counter=WordCounter(), budget=budget) as memory:
        session = memory.session("s")
        for number in range(4):
            session.append("user", words(12, f"w{number}"))
        session.assemble()
        early, late = session.subtask("early"), session.subtask("late")
        for subtask in (early, late):
            for text in ("one", "two", "three"):
                subtask.append("user", text)
        expected = early.assemble()
        session.append("user", words(60))
        session.assemble()

        assert late.assemble().token_ids == expected.token_ids


def test_a_warning_of_prompts_is_logged_once_until_the_pins_change(tmp_path, caplog):
    with Memory.open(
        f"sqlite:///{tmp_path}/m.db", counter=WordCounter(), budget=Budget(context=200, reply=10)
    ) as memory:
        session = memory.session("s")
        session.pin("rules", words(160))
        for text in ("one", "two", "three"):
            session.append("user", text)
            assert session.assemble().warnings

        assert len([r for r in caplog.records if "pins take" in r.getMessage()]) == 1
