"""A line that quotes sentences of a script without spaces is still its speaker's."""

import pytest

from agentmem import Memory
from agentmem.config import Budget
from agentmem.testing import WordCounter

TEXTS = {
    "chinese": "\u6211\u4eec\u5468\u4e94\u53bb\u3002\u9884\u7b97\u662f\u4e94\u767e\uff01",
    "japanese": "\u884c\u304d\u3002\u4e88\u7b97\u306f\u4e94\u767e\u3067\u3059\u3002",
    "mixed": "\u6211\u4eec\u53bb\u3002Book it now. \u9884\u7b97\u662f\u4e94\u767e\uff01ok",
}


@pytest.mark.slow
@pytest.mark.parametrize("script", TEXTS)
def test_every_line_of_a_summary_names_its_speaker(script):
    memory = Memory.open("sqlite://", counter=WordCounter(), budget=Budget(context=200, reply=20))
    session = memory.session("s")
    shown = []
    for i in range(60):
        session.append("user", f"{TEXTS[script]}{i}")
        session.append("assistant", f"fact {i} is noted. {TEXTS[script]}")
        prompt = session.assemble(budget=Budget(context=200, reply=20, summary=0.4))
        shown += [m.text for m in prompt.messages if m.text.startswith("Summary")]

    lines = [line for text in shown for line in text.splitlines()[1:]]
    assert len(lines) > 50
    assert [line for line in lines if "] user:" not in line and "] assistant:" not in line] == []
