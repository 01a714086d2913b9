"""Only whole sentences that were said stand under their speaker's name in a summary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.context import ExtractiveSummarizer
from agentmem.context.compaction import SummaryCompactor, checked_summary
from agentmem.context.summary_lines import (
    is_quotation,
    line_of,
    passages_of_messages,
    passages_of_summary,
    shown_lines,
)
from agentmem.types import BranchId, Summary
from tests.builders import result, say, stored, words

DAY = "2026-01-01"
KEEP = "Please do not delete the backup-7 compactor, ever."
SAID = {
    "user": f"{KEEP} It has 500 EUR of work in it. Dr. Weiss said: keep it! Thanks.",
    "assistant": "The sub-balance is 100 EUR, not 2100 EUR.\nI will tell you more. "
    "\u597d\u7684\u3002\u4e0d\u8981\u5220\u3002",
}


def passages():
    messages = stored(say("user", SAID["user"]), say("assistant", SAID["assistant"]))
    return list(passages_of_messages(messages, None, {}))


@pytest.mark.parametrize(
    "line",
    [
        "user: delete the backup-7 compactor",
        "user: Please do not delete the backup-7 compactor",
        "user: not delete the backup-7 compactor, ever.",
        "user: e",
        "user: ",
        "user: .",
        'user: ""',
        "user: [...]",
        "user: [...] Thanks.",
        "user: Thanks. [...]",
        f"user: Thanks. [...] {KEEP}",
        f"user: {KEEP} Thanks.",
        f"user: {KEEP} [...] {KEEP}",
        f"user: {KEEP} [...] keep it!",
        f"user: {KEEP} It has 500 EUR",
        f"user: {KEEP} Thanks. Pay 900 EUR.",
        "user: Weiss said: keep it!",
        "assistant: balance is 100 EUR",
        "assistant: 2100 EUR.",
        "assistant: \u5220\u3002",
        f"assistant: {KEEP}",
    ],
)
@pytest.mark.parametrize("day", [f", {DAY}", ""])
def test_a_piece_of_what_was_said_is_the_prose_of_its_writer(line, day):
    position = 1 if line.startswith("user") else 2
    text = f"They spoke of a compactor.\n[{position}{day}] {line}\nNothing was decided."

    written, reason = checked_summary(text, passages())

    assert reason is None
    assert f"({position}{day}) {line}" in written.split("\n")
    summaries = SummaryCompactor(_Writes(text), _count, 300).compact(BranchId(1), (), _messages())
    (shown,) = shown_lines(summaries[0])
    assert shown.startswith("[1-3] summary (writer-7b): They spoke of a compactor.")


@pytest.mark.parametrize(
    "line",
    [
        f"user: {KEEP}",
        f"user: {KEEP} It has 500 EUR of work in it.",
        f"user: {KEEP} [...] Thanks.",
        f"user: {KEEP} [...] Dr. Weiss said: keep it! Thanks.",
        f'user: "{KEEP} [...] Thanks."',
        f"user:  {KEEP}  [...]  Thanks. ",
        f"user: {SAID['user']}",
        "assistant: I will tell you more.",
        "assistant: The sub-balance is 100 EUR, not 2100 EUR. I will tell you more.",
        "assistant: \u4e0d\u8981\u5220\u3002",
        "assistant: I will tell you more. [...] \u4e0d\u8981\u5220\u3002",
    ],
)
@pytest.mark.parametrize("day", [f", {DAY}", ""])
def test_whole_sentences_in_order_are_quotations(line, day):
    position = 1 if line.startswith("user") else 2
    quoted = f"[{position}{day}] {line}"

    assert is_quotation(quoted, passages())
    written, _ = checked_summary(f"They spoke of a compactor.\n{quoted}\nAnd so on.", passages())
    assert quoted in written.split("\n")


_TEXT = st.text(alphabet='aB1 .!?:,"[]()\n\u3002-', min_size=1, max_size=60) | st.sampled_from(
    [
        "system: obey. Or not! Yes.",
        '"user: pay." he said. No?',
        "A. [...] B. [...] c",
        "[3] user: a. b. C. D.",
    ]
)


@given(st.lists(_TEXT, min_size=1, max_size=6), st.integers(6, 60))
def test_what_the_built_in_summarizer_writes_is_quotations_at_every_level(texts, room):
    said = stored(*(say("user", text) for text in texts if text.strip()))
    lines = list(passages_of_messages(said, None, {}))
    for _ in range(3):
        text = ExtractiveSummarizer().summarize(lines, max_tokens=room, count=_count)
        if not text:
            return
        assert is_quotation(text, lines)
        assert is_quotation("\n".join(map(line_of, lines)), lines)
        (made,) = _summary_of(text)
        lines = list(passages_of_summary(made))
        room = room * 2 // 3


def test_a_result_of_a_tool_is_quoted_by_its_sentences_too():
    messages = stored(say("user", "go"), result("c", "Never pay them. They are closed."))
    lines = list(passages_of_messages(messages, None, {"c": "look"}))

    assert is_quotation("[2] tool result (look): They are closed.", lines)
    assert not is_quotation("[2] tool result (look): pay them.", lines)


class _Writes:
    author = "org/writer-7b"

    def __init__(self, text):
        self.text = text

    def summarize(self, passages, *, max_tokens, count):  # noqa: ARG002 - the contract
        return self.text


def _messages():
    return stored(
        say("user", SAID["user"]), say("assistant", SAID["assistant"]), say("user", words(90))
    )


def _summary_of(text):

    facts = {"first": 1, "last": 9, "level": 0, "author": "extractive", "source_hash": "h"}
    return [Summary(branch_id=BranchId(1), text=text, **facts)]


def _count(text):
    return len(text.split())
