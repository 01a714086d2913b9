"""What a user may plug in, and what happens when it misbehaves."""

from agentmem.config import Budget
from agentmem.context import ModelSummarizer, PinTask, Policy, diff
from agentmem.context.compaction import SummaryCompactor
from agentmem.errors import AdmissionError
from agentmem.protocols import Passage
from agentmem.testing import ScriptedModel
from agentmem.types import BranchId, Role, Span, Tier
from tests.builders import pin, say, stored, words
from tests.context.replay import Replay


def count(text):
    return len(text.split())


class Recording(ScriptedModel):
    """Remembers also the requests that were discarded."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.asked = []

    def stream(self, request):
        self.asked.append(request)
        return super().stream(request)


PASSAGES = [
    Passage(position=1, role=Role.USER, text="We take Hotel Lisboa for 92 EUR. " + words(30)),
]


def summarize(model, max_tokens=20):
    summarizer = ModelSummarizer(model)
    return summarizer.summarize(PASSAGES, max_tokens=max_tokens, count=count), summarizer.author


def test_a_model_writes_the_summary_and_is_its_author():
    text, author = summarize(ScriptedModel(["Hotel Lisboa, 92 EUR."]))

    assert (text, author) == ("Hotel Lisboa, 92 EUR.", "scripted")


def test_a_model_that_says_nothing_is_asked_twice_and_then_replaced():
    model = Recording(["", ""])

    text, author = summarize(model)

    assert len(model.asked) == 2
    assert "92 EUR" in text
    assert author == "extractive, since scripted failed: it said nothing that is short enough"


class Refusing(ScriptedModel):
    def stream(self, request):
        raise AdmissionError(needed=len(request.token_ids), limit=1, reason="the pool")


def test_an_error_of_the_model_never_becomes_memory():
    text, author = summarize(Refusing())

    assert "the pool" not in text
    assert "92 EUR" in text
    assert author.endswith("AdmissionError")


def test_what_is_longer_than_the_models_window_is_cut_down_first():
    model = Recording(["short"], context_window=120)
    long = [Passage(position=n, role=Role.USER, text=words(50, f"w{n}")) for n in range(20)]

    text = ModelSummarizer(model).summarize(long, max_tokens=20, count=count)

    assert text == "short"
    assert len(model.asked[0].token_ids) <= 100


def test_no_two_summaries_can_find_each_others_words_in_the_cache():
    model = Recording(["one", "two"])
    summarizer = ModelSummarizer(model)

    for _ in range(2):
        summarizer.summarize(PASSAGES, max_tokens=20, count=count)

    first, second = model.asked
    assert first.token_ids == second.token_ids
    assert first.cache_salt != second.cache_salt
    assert model.requests == [], "nothing is left behind"


class Raising:
    author = "mine"

    def summarize(self, passages, *, max_tokens, count):
        raise RuntimeError(str((passages, max_tokens, count)))


def test_a_summarizer_that_raises_takes_no_reply_down():
    messages = stored(say("user", "We pay 92 EUR. " + words(60)))

    (made,) = SummaryCompactor(Raising(), count, 90).compact(BranchId(1), (), messages)

    assert "92 EUR" in made.text
    assert made.author == "extractive, since mine raised RuntimeError"


def talk(number):
    replay = Replay(
        Budget(context=101, reply=1, retrieved=0), [pin("role", "be kind")], Policy(summarizer=None)
    )
    prompts = []
    for n in range(number):
        replay.say(say("user", words(12, f"u{n}")))
        prompts.append(replay.assemble())
    return prompts


def test_a_prompt_explains_itself():
    text = next(prompt for prompt in talk(9) if prompt.truncations).explain()

    assert "pin session/role, version 1" in text
    assert "not shown" in text
    assert "recent tier" in text
    assert "left the window: the recent tier had room for" in text
    assert "then broken by: compaction" in text


def test_a_diff_names_what_entered_and_what_left():
    prompts = talk(9)
    slid = next(i for i, p in enumerate(prompts) if p.truncations)

    found = diff(prompts[slid - 1], prompts[slid])

    gone = prompts[slid].truncations[0]
    assert found.left == (Span(first=gone.first, last=gone.last, tier=Tier.RECENT),)
    assert found.entered == (Span(first=slid + 1, last=slid + 1, tier=Tier.CURRENT),)
    assert found.tokens_by_tier[Tier.RECENT] < 0
    assert found.pins == ()


def test_a_task_that_is_longer_than_a_pin_should_be_is_pinned_by_its_ends():
    (task,) = stored(say("user", "begin " + words(500) + " end"))

    key, text = PinTask(max_chars=40).pin(task, is_first=True)

    assert key == "task"
    assert text.startswith("begin ")
    assert text.endswith(" end")
    assert "message 1 has all 1009 characters" in text
    assert len(text) < 120
