"""What gives way first, and what never does."""

from itertools import pairwise

import pytest

from agentmem.config import Budget
from agentmem.context import DiscardOldResults, Policy
from agentmem.context.prompt_messages import shown_turns
from agentmem.errors import ContextOverflowError
from agentmem.protocols import Hit
from agentmem.testing import WordCounter
from agentmem.types import DisplayForm, PrefixBreak, Role, Span, Tier, TruncationReason
from tests.builders import call, pin, result, say, stored, turns, words
from tests.context.replay import Replay

NO_SUMMARY = Policy(summarizer=None)


def replay(prompt, *, policy=NO_SUMMARY, pins=(), **shares):
    budget = Budget(context=prompt + 1, reply=1, **({"retrieved": 0} | shares))
    return Replay(budget, pins, policy)


def texts(prompt):
    return [message.text for message in prompt.messages]


def test_an_agent_with_one_question_and_200_calls_still_works():
    """A question of 4 tokens and calls of 6 in a window of 60: the newest calls stand."""
    agent = replay(60)
    agent.say(say("user", "find everything"))
    for number in range(200):
        agent.say(call(f"c{number}"), result(f"c{number}", f"r{number}"))
        prompt = agent.assemble()
        assert prompt.num_tokens <= 60
        assert prompt.messages[0].text == "find everything"
        assert prompt.messages[-1].text == f"r{number}"

    assert agent.check() == ()
    assert {record.reason for record in agent.records} == {TruncationReason.WINDOW}
    assert {record.tier for record in agent.records} == {Tier.CURRENT}


def test_parallel_calls_leave_with_all_their_results():
    agent = replay(30)
    agent.say(say("user", "go"), call("a", "b"), result("b", words(3)), result("a", words(3)))
    agent.say(call("c"), result("c", words(9)))

    prompt = agent.assemble()

    assert [message.role for message in prompt.messages] == [
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
    ]
    assert prompt.messages[1].tool_calls[0].id == "c"
    assert prompt.layout[1] == Span(first=2, last=4, tier=None)


def test_open_calls_and_the_latest_results_never_leave():
    agent = replay(23)
    agent.say(say("user", "go"), call("a"), result("a", words(8)))
    agent.say(call("b", "c"), result("c", "half"))

    prompt = agent.assemble()

    assert [call.id for m in prompt.messages for call in m.tool_calls] == ["b", "c"]
    assert prompt.messages[-1].text == "half"


def test_a_loop_that_was_cut_stays_cut_when_its_turn_is_old():
    agent = replay(44)
    agent.say(say("user", "go"))
    for number in range(6):
        agent.say(call(f"c{number}"), result(f"c{number}", words(5)))
        agent.assemble()
    agent.say(say("assistant", "done"), say("user", "thanks"))

    prompt = agent.assemble()

    assert prompt.reuse.broken_by is None
    assert texts(prompt)[0] == "go"
    assert prompt.layout[1].tier is None


def test_a_result_larger_than_the_window_is_clipped_around_a_marker():
    agent = replay(40)
    agent.say(say("user", "go"), call("a"), result("a", words(500)))

    prompt = agent.assemble()

    clipped = prompt.messages[-1].text
    assert clipped.startswith("w w w")
    assert clipped.endswith("w w")
    assert "message 3 has all 999 characters" in clipped
    assert prompt.num_tokens <= 40
    (record,) = prompt.truncations
    assert (record.reason, record.first, record.num_tokens) == (TruncationReason.CLIPPED, 3, 502)


def test_as_much_is_kept_as_fits():
    agent = replay(40)
    agent.say(say("user", words(500)))

    assert agent.assemble().num_tokens == 40


def test_results_are_clipped_before_the_users_own_message_even_if_that_is_longer():
    agent = replay(52)
    agent.say(say("user", words(30)), call("a"), result("a", words(20)))

    prompt = agent.assemble()

    assert prompt.messages[0].text == words(30)
    assert "clipped" in prompt.messages[-1].text


def test_the_window_slides_before_anything_is_clipped():
    agent = replay(40)
    agent.say(say("user", words(10)), say("user", words(30)))

    prompt = agent.assemble()

    assert texts(prompt) == [words(30)]


def test_a_clipped_message_is_clipped_alike_in_the_next_prompt():
    (turn,) = turns(50)
    clipped = Span(first=1, last=1, tier=Tier.CURRENT, form=DisplayForm.CLIPPED, kept_chars=7)

    ((shown,),) = shown_turns([turn], [clipped])

    assert (shown.form, shown.kept_chars) == (DisplayForm.CLIPPED, 7)
    assert shown.message.text == "w w \n[... clipped; message 1 has all 95 characters ...]\nw w"


def test_without_clipping_a_message_over_the_window_is_an_error():
    agent = replay(40, clip=False)
    agent.say(say("user", words(500)))

    with pytest.raises(ContextOverflowError):
        agent.assemble()


def test_pins_are_never_clipped():
    agent = replay(40, pins=[pin("role", words(50))])
    agent.say(say("user", "hello"))

    with pytest.raises(ContextOverflowError) as caught:
        agent.assemble()

    assert caught.value.tokens_by_tier == {"template": 1, "pinned": 52, "current": 3}


def test_discardable_results_give_way_before_turns_do():
    """The stub is 9 words; it is asked for only when the window is full."""
    agent = replay(100, policy=Policy(summarizer=None, discardable=DiscardOldResults(turns=1)))
    agent.say(say("user", "one"), call("a"), result("a", words(60)))
    assert words(60) in texts(agent.assemble())
    agent.say(say("user", "two"))
    agent.say(say("user", "three " + words(30)))

    prompt = agent.assemble()

    assert texts(prompt)[0] == "one"
    assert texts(prompt)[2] == "[left out to save room; message 3 has it]"
    assert [s.form for s in prompt.layout][:2] == [DisplayForm.FULL, DisplayForm.STUB]
    (record,) = prompt.truncations
    assert (record.reason, record.first, record.tier) == (TruncationReason.STUBBED, 3, Tier.RECENT)
    agent.say(say("user", "four"))
    assert agent.assemble().messages[2] == prompt.messages[2]
    assert agent.check() == ()


def hit(position, text, score):
    (message,) = stored(say("user", text), start=position)
    return Hit(stored=message, score=score)


def test_recalled_messages_stand_before_the_current_turn_oldest_first():
    agent = replay(200, retrieved=60)
    agent.say(*(say("user", words(60, f"w{n}")) for n in range(6)), say("user", "now"))
    agent.assemble()

    prompt = agent.assemble([hit(2, "second", 0.5), hit(1, "first", 0.9)])

    recalled = texts(prompt)[-2]
    assert recalled.index("first") < recalled.index("second")
    assert texts(prompt)[-1] == "now"
    assert prompt.tokens_by_tier[Tier.RETRIEVED] > 0
    assert prompt.layout[0].tier is Tier.RETRIEVED


def test_what_the_window_shows_is_not_recalled_too():
    agent = replay(200, retrieved=60)
    agent.say(say("user", "one"), say("user", "two"))

    prompt = agent.assemble([hit(1, "one", 0.9)])

    assert Tier.RETRIEVED not in prompt.tokens_by_tier


def test_a_hit_that_does_not_fit_is_skipped_for_a_smaller_one():
    agent = replay(200, retrieved=20)
    agent.say(*(say("user", words(60)) for _ in range(6)), say("user", "now"))
    agent.assemble()

    prompt = agent.assemble([hit(1, words(30), 0.9), hit(2, "small", 0.5)])

    assert "small" in texts(prompt)[-2]
    assert words(30) not in texts(prompt)[-2]


def test_what_is_not_recalled_again_is_on_record():
    agent = replay(200, retrieved=60)
    agent.say(*(say("user", words(60)) for _ in range(6)), say("user", "now"))
    agent.assemble()
    agent.assemble([hit(1, "first", 0.9)])

    prompt = agent.assemble()

    (record,) = prompt.truncations
    assert (record.reason, record.first, record.last) == (TruncationReason.NOT_RETRIEVED, 1, 1)
    assert record.tier is Tier.RETRIEVED
    assert agent.check() == ()


def recalling(turns, *, keep):
    """Three messages a turn are recalled; the window holds some eight turns."""
    policy = Policy(summarizer=None, keep_recalled=keep)
    agent = replay(400, policy=policy, retrieved=120)
    prompts = []
    for number in range(turns):
        agent.say(say("user", words(30, f"u{number}")))
        hidden = agent.messages[: max(0, number - 14)][-3:]
        hits = [Hit(stored=one, score=one.position) for one in hidden]
        prompts.append(agent.assemble(hits))
    assert agent.check() == ()
    assert all(prompt.num_tokens <= 400 for prompt in prompts)
    return prompts


def test_recalled_text_at_the_tail_breaks_the_prefix_with_each_turn():
    prompts = recalling(30, keep=False)

    reasons = [prompt.reuse.broken_by for prompt in prompts[20:]]
    assert set(reasons) <= {PrefixBreak.RETRIEVED, PrefixBreak.COMPACTION}


def test_recalled_text_that_is_kept_in_its_place_breaks_no_prefix():
    prompts = recalling(30, keep=True)

    for one, other in pairwise(prompts):
        if other.reuse.broken_by is None:
            assert other.reuse.common_tokens >= one.num_tokens - 1
            assert other.token_ids[: one.num_tokens - 1] == one.token_ids[:-1]
    assert {prompt.reuse.broken_by for prompt in prompts[1:]} == {None, PrefixBreak.COMPACTION}
    assert sum(prompt.reuse.broken_by is None for prompt in prompts) > 15
    assert prompts[-1].tokens_by_tier[Tier.RETRIEVED] > 0


def test_the_count_of_a_prompt_is_that_of_its_messages():
    agent = replay(60, summary=0.4)
    agent.say(say("user", words(90)))

    prompt = agent.assemble()

    assert prompt.token_ids == WordCounter().render(prompt.messages).token_ids
