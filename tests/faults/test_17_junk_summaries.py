"""What says nothing of the conversation is no summary; thoughts are not memory."""

import pytest

from agentmem.config import Budget
from agentmem.context import ExtractiveSummarizer, ModelSummarizer, Policy
from agentmem.context.compaction import SummaryCompactor
from agentmem.context.summary_checks import INSTRUCTIONS, read_summary
from agentmem.context.summary_lines import is_quotation, passages_of_summary
from agentmem.memory import Memory
from agentmem.protocols import Passage
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import BranchId, Role
from tests.builders import say, stored, words


def count(text):
    return len(text.split())


class Writes:
    author = "mine"

    def __init__(self, text):
        self.text = text

    def summarize(self, passages, *, max_tokens, count):  # noqa: ARG002 - the contract
        return self.text


SAID = stored(say("user", "We pay 92 EUR for it. " + words(90, "chat")), say("assistant", "Noted."))

JUNK = [
    "\u3164",
    "\u115f\u1160\uffa0",
    "[TRUNCATED]",
    "[INST] [/INST]",
    "<html><body>err</body></html>",
    "(calls search {})",
    'call: search("x")',
    "The conversation is empty.",
    "Loading...",
    "https://example.com",
    "print('hi')",
    "SELECT * FROM x",
    "{}",
    "[]",
    "null",
    "...",
    "---",
    "\u200b",
    "\u200b\u2060\ufeff",
    "\u2026",
    "***",
    "42",
    "\ufffd",
    "None",
    "N/A",
    "undefined",
    "true",
    "ok",
    "OK.",
    "Done!",
    "TODO",
    "[summary]",
    "Summary:",
    "```",
    "<summary></summary>",
    "<summary> </summary>",
    "<p></p><br/>",
    "<|im_end|>",
    "</s></s>",
    "<pad>",
    "```\n```",
    "```json\n{}\n```",
    '```json\n{"a": 1}\n```',
    "```python\nprint(1)\n```",
    "\U0001f44d",
    '{"a": "b", "c": 1}',
    '{"type": "tool_use", "name": "x"',
    '[{"role": "user"',
    '{"summary": ""}',
    '""',
    "{'a': 1}",
    '{"error": {"message": "overloaded"}}',
    '{"type":"tool_use","input":{}}',
    '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>',
    '<function=search>{"q": 1}</function>',
    '[TOOL_CALLS] [{"name": "search"}]',
    '<|python_tag|>search(q="x")',
    'I will search.\n<tool_call>{"name": "search"}</tool_call>',
    "Action: search\nAction Input: hotels",
    "<think>hmm</think>",
    "<think>I should list the boxes",
    "<thinking>\nso they\n</thinking>\n",
    "<THINK>a</THINK> ",
    "[THINK]so[/THINK]",
    "<|channel|>analysis<|message|>They said that",
    "<think>a</think>{}",
    "word word word word word",
    "the the the the the the the the the the the the",
    "I don't know. " * 12,
    "\u4e0d\u8981" * 60,
    "A" * 200,
    "haha " * 30 + "ha",
    INSTRUCTIONS,
    INSTRUCTIONS[:60],
    "Please summarize the conversation above in a few sentences.",
    "The conversation:\n[1] user: hello there my friend",
    "I'm sorry, but I can't",
    "I am sorry, I cannot help with that.",
    "I cannot summarise this.",
    "I\u2019m unable to do that.",
    "As an AI language model, I have no memory.",
    "Sorry, I can't.",
    "Unfortunately, I do not have it.",
    "I apologize for the inconvenience.",
    "I can't assist.",
    "It seems you have not provided a conversation.",
    "Please provide the conversation.",
    "There is no conversation to summarize.",
    "Could you please share the text?",
    "How can I help you today?",
    "Es tut mir leid, das kann ich nicht.",
    "Lo siento, no puedo.",
    "D\u00e9sol\u00e9, je ne peux pas.",
    "\u62b1\u6b49\uff0c\u6211\u65e0\u6cd5",
    "\u7533\u3057\u8a33\u3042\u308a\u307e\u305b\u3093",
    "\u0418\u0437\u0432\u0438\u043d\u0438\u0442\u0435, \u044f \u043d\u0435 5.",
    "\uc8c4\uc1a1\ud569\ub2c8\ub2e4.",
    "Error: 429 Too Many Requests",
    "Internal Server Error",
    "HTTP 503 Service Unavailable",
    "429 Too Many Requests",
    "Error 500: internal",
    "Error: model overloaded",
    "502 Bad Gateway",
    "Traceback (most recent call last):\n  File",
    "openai.RateLimitError: Error code: 429",
    "Rate limit exceeded.",
    "Request timed out.",
    "CUDA out of memory.",
    "Error",
    "Timeout",
    "<!DOCTYPE html><html>502</html>",
    "Connection refused",
    "An error occurred: x",
    "Not found",
    "Sure, I can help with that!",
    "Here is a summary of the conversation:",
    "Certainly! Here is it:",
    "assistant:",
    "User",
    "No summary available.",
    "Nothing to summarize.",
    "(empty)",
]


@pytest.mark.parametrize("text", JUNK)
def test_junk_is_no_summary_and_the_author_says_why(text):
    cleaned, reason = read_summary(text)
    assert reason is not None, cleaned

    (own,) = SummaryCompactor(Writes(text), count, 120).compact(BranchId(1), (), SAID)
    assert "We pay 92 EUR for it." in own.text
    assert own.author == f"extractive, since mine was rejected: {reason}"

    writer = ModelSummarizer(ScriptedModel([text] * 2))
    (by_model,) = SummaryCompactor(writer, count, 120).compact(BranchId(1), (), SAID)
    assert "We pay 92 EUR for it." in by_model.text
    assert by_model.author == f"extractive, since scripted failed: {reason}"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Boxes hold apples.", None),
        ("short", None),
        ("in short", None),
        ("500 EUR is the budget.", None),
        ("404 rooms were booked by Bob.", None),
        ("Error handling was discussed; the timeout is now 5 s.", None),
        ("The user saw an Internal Server Error and was sorry.", None),
        ("Unfortunately, no rooms were free in May.", None),
        ("Okay, the user wants apples and no pears.", None),
        ("This is about a trip to Lisbon.", None),
        ("The user asked for a summary of the report.", None),
        ("They will not sign before 5 May, they can't.", None),
        ("- apples: 5\n- pears: 7", None),
        ("\u7528\u6237\u8981\u4e94\u4e2a\u82f9\u679c", None),
        ("\u0434\u0430, \u043e\u043d \u043f\u0440\u0438\u0434\u0435\u0442", None),
        ("Yes, he comes on 5 May.", None),
        ("<think>so</think>Boxes hold apples.", "Boxes hold apples."),
        ("so they said</think>\n\nBoxes hold apples.", "Boxes hold apples."),
        ("Boxes hold apples.<|im_end|>", "Boxes hold apples."),
        ("<summary>Boxes hold apples.</summary>", "Boxes hold apples."),
        ("```\nBoxes hold apples.\n```", "Boxes hold apples."),
        ('{"summary": "Boxes hold apples."}', "Boxes hold apples."),
        ('"Boxes hold apples."', "Boxes hold apples."),
        ("Here is a summary: boxes hold apples.", None),
    ],
)
def test_what_says_something_is_taken_without_its_frame(text, kept):
    kept = kept or text

    assert read_summary(text) == (kept, None)
    (own,) = SummaryCompactor(Writes(text), count, 120).compact(BranchId(1), (), SAID)
    assert (own.text, own.author) == (kept, "mine")
    made = ModelSummarizer(ScriptedModel([text])).summarize(
        [Passage(position=1, role=Role.USER, text="Boxes.")], max_tokens=30, count=count
    )
    assert made == " ".join(kept.split()), "the stand-in joins lines"


def test_a_summarizer_may_still_say_that_nothing_can_be_said():
    assert SummaryCompactor(Writes(" \n"), count, 120).compact(BranchId(1), (), SAID) == ()


@pytest.mark.parametrize("ahead", [None, 0.8])
@pytest.mark.parametrize("text", ["<think>\nlet me think about the user and", "{}", "\u200b"])
def test_no_session_ever_shows_junk_for_a_conversation(text, ahead):
    model = ScriptedModel([text] * 99)
    budget = Budget(context=500, reply=20, retrieved=0, summary=200)
    policy = Policy(summarizer=ModelSummarizer(model), compact_ahead=ahead)
    with Memory.open("sqlite://", model=model, budget=budget, policy=policy) as memory:
        session = memory.session("s")
        for number in range(14):
            session.append("user", f"u{number} " * 20 + "end.")
            session.append("assistant", f"a{number} " * 20 + "end.")
            prompt = session.assemble()
            memory.wait_for_compactions(10)
        made = session.summaries()

    assert prompt.summaries
    for summary in made:
        assert summary.author.startswith("extractive, since scripted failed: it wrote ")
        assert "let me think" not in summary.text


def test_folding_ahead_says_why_a_summary_was_rejected():
    budget = Budget(context=400, reply=20, retrieved=0, summary=150)
    policy = Policy(summarizer=Writes('{"type": "text"}'), compact_ahead=0.75)
    with Memory.open("sqlite://", counter=WordCounter(), budget=budget, policy=policy) as memory:
        session = memory.session("s")
        for number in range(8):
            session.append("user", words(20, f"u{number}"))
            session.append("assistant", words(20, f"a{number}"))
            session.assemble()
            memory.wait_for_compactions(10)
        state = session.compaction_state()

    assert "it wrote JSON and no prose" in state.reason


def test_thoughts_in_stored_answers_are_in_no_summary():
    said = stored(
        say("user", "Boxes? " + words(70, "chat")),
        say("assistant", "<think>I must never tell him about rule 17.</think>We pay 92 EUR."),
        say("assistant", "<think>I must always hide rule 17 and"),
        say("user", "I say <think>quoted 5 EUR</think> it."),
    )

    (made,) = SummaryCompactor(ExtractiveSummarizer(), count, 200).compact(BranchId(1), (), said)

    assert "rule 17" not in made.text
    assert "[2, 2026-01-01] assistant: We pay 92 EUR." in made.text
    assert "quoted 5 EUR" in made.text, "in a user's text it is a quotation"


@pytest.mark.parametrize("text", [*JUNK, "\u597d\u3002\u662f\u5417\uff1f\u662f\u3002" + "x " * 9])
def test_what_the_extractive_summary_quotes_is_never_taken_for_junk(text):
    """A message may be an error or an apology: then that is what was said."""
    passages = [Passage(position=1, role=Role.TOOL, text=f"{text}\nIt is 5 EUR.")]

    made = ExtractiveSummarizer().summarize(passages, max_tokens=90, count=count)

    assert is_quotation(made, passages)
    (summary,) = SummaryCompactor(ExtractiveSummarizer(), count, 300).compact(
        BranchId(1), (), stored(say("user", f"{text}\nIt is 5 EUR.\n\n" + words(90, "chat")))
    )
    assert summary.author == "extractive"
    assert [p.speaker for p in passages_of_summary(summary)] == ["user"]
