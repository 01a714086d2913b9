"""Messages that leave the window are replaced by a summary that covers them."""

from itertools import pairwise

from agentmem.config import Budget
from agentmem.context import Policy
from agentmem.context.compaction import SummaryCompactor
from agentmem.context.extractive import ExtractiveSummarizer
from agentmem.testing import WordCounter
from agentmem.types import BranchId, Summary, Tier, TruncationReason, common_prefix
from tests.builders import pin, say, stored, words
from tests.context.replay import Replay


class Fixed:
    """A summarizer that always writes the same text."""

    author = "fixed"

    def __init__(self, text):
        self.text = text
        self.asked = []

    def summarize(self, passages, *, max_tokens, count):  # noqa: ARG002 - the contract
        self.asked.append([passage.text for passage in passages])
        return self.text


def count(text):
    return len(text.split())


def compactor(text, max_tokens=90):
    return SummaryCompactor(Fixed(text), count, max_tokens)


def messages(*sizes, start=1):
    return stored(*(say("user", words(size)) for size in sizes), start=start)


def test_a_summary_covers_the_run_it_was_made_of():
    (made,) = compactor("short").compact(BranchId(1), (), messages(30, 30))

    assert (made.first, made.last, made.level, made.text) == (1, 2, 0, "short")
    assert made.author == "fixed"


def test_a_summary_that_is_not_smaller_is_refused():
    assert compactor(words(31)).compact(BranchId(1), (), messages(30, 30)) == ()


def test_an_empty_summary_is_refused():
    assert compactor(" \n").compact(BranchId(1), (), messages(30, 30)) == ()


def test_a_run_too_small_to_sum_up_is_left_without_a_summary():
    assert compactor("short").compact(BranchId(1), (), messages(10, 10)) == ()


def test_text_that_cannot_be_stored_is_repaired():
    (made,) = compactor("a\x00b").compact(BranchId(1), (), messages(30, 30))

    assert made.text == "a\ufffdb"


def test_a_full_tier_folds_its_older_summaries_into_one_of_a_higher_level():
    """Three summaries of 30 words fill a tier of 90; a fourth makes the first three one."""
    summaries = ()
    for number in range(4):
        smaller = compactor(words(15) if number == 3 else words(30), 90)
        summaries = smaller.compact(BranchId(1), summaries, messages(100, start=number + 1))
    assert [(s.first, s.last, s.level) for s in summaries] == [
        (1, 1, 0),
        (2, 2, 0),
        (3, 3, 0),
        (4, 4, 0),
    ] or [(s.first, s.last) for s in summaries][-1] == (4, 4)

    more = compactor(words(20), 90).compact(BranchId(1), summaries, messages(100, start=5))

    assert sum(count(s.text) for s in more) <= 90
    assert (more[0].first, more[-1].last) == (1, 5)
    assert max(s.level for s in more) == 1


def test_when_nothing_can_be_made_smaller_the_oldest_summary_is_dropped():
    largest = compactor(words(30), 60)
    summaries = ()
    for number in range(3):
        summaries = SummaryCompactor(Fixed(words(20)), count, 60).compact(
            BranchId(1), summaries, messages(100, start=number + 1)
        )

    more = largest.compact(BranchId(1), summaries, messages(100, start=4))

    assert sum(count(s.text) for s in more) <= 60


def test_a_summary_inside_the_run_is_folded_into_the_new_one():
    inner = compactor("inner").compact(BranchId(1), (), messages(60, start=2))
    summarizer = Fixed("outer")

    (made,) = SummaryCompactor(summarizer, count, 90).compact(
        BranchId(1), inner, messages(60, 60, 60)
    )

    assert (made.first, made.last, made.level) == (1, 3, 1)
    assert summarizer.asked == [[words(60), "inner", words(60)]]


def test_the_same_content_has_the_same_key_and_another_another():
    one, two, other = (
        compactor(text).compact(BranchId(1), (), messages(60))[0] for text in ("a", "a", "b")
    )

    assert one.key == two.key != other.key


def talk(prompt=600, turns=60, **shares):
    budget = Budget(context=prompt + 1, reply=1, **({"retrieved": 0} | shares))
    replay = Replay(budget, [pin("role", "be kind")])
    prompts = []
    for number in range(turns):
        replay.say(
            say("user", f"Room {number} costs {number * 10} EUR. " + words(12, f"u{number}"))
        )
        prompts.append(replay.assemble())
        replay.say(say("assistant", f"Noted {number}. " + words(12, f"a{number}")))
    return replay, prompts


def test_a_long_talk_keeps_summaries_within_their_tier_and_balances():
    replay, prompts = talk()

    assert replay.check() == ()
    assert all(p.num_tokens <= 600 for p in prompts)
    assert all(p.tokens_by_tier.get(Tier.SUMMARY, 0) <= 0.15 * 600 + 11 for p in prompts)
    assert prompts[-1].tokens_by_tier[Tier.SUMMARY] > 0
    assert prompts[-1].layout[0].tier is Tier.SUMMARY
    assert prompts[-1].messages[0].text == "be kind"
    assert prompts[-1].messages[1].text.startswith("Summary of the earlier conversation")


def test_what_left_names_the_summary_that_it_went_to():
    replay, _ = talk()

    gone = [record for record in replay.records if record.reason is TruncationReason.WINDOW]
    keys = {f"summary {key}" for key in replay.summaries}
    assert gone
    assert {record.destination for record in gone} <= keys
    named = [p for r in gone for p in range(r.first, r.last + 1)]
    assert len(named) == len(set(named))


def test_summaries_change_only_when_the_window_slides():
    _, prompts = talk()

    for one, other in pairwise(prompts):
        if other.reuse.broken_by is None:
            assert other.summaries == one.summaries


def test_without_a_summarizer_nothing_is_summed_up():
    budget = Budget(context=101, reply=1, retrieved=0)
    replay = Replay(budget, policy=Policy(summarizer=None))
    for number in range(20):
        replay.say(say("user", words(12, f"u{number}")))
        prompt = replay.assemble()

    assert prompt.summaries == ()
    assert replay.check() == ()


def test_the_reported_prefix_is_the_real_one():
    """Told from two layouts, without the ids of the older prompt."""
    _, prompts = talk()

    for one, other in pairwise(prompts):
        real = common_prefix(one.token_ids, other.token_ids)
        if other.reuse.broken_by is None:
            assert other.reuse.common_tokens == real == one.num_tokens
        else:
            assert 0 < other.reuse.common_tokens <= real
    assert WordCounter().fingerprint == prompts[0].fingerprint


def test_what_a_summary_covers_already_needs_no_other():
    """A message that a subtask promoted is shown by itself, inside of what is summed up."""
    old = Summary(
        branch_id=BranchId(1), first=1, last=6, level=0, text="old", author="x", source_hash="h"
    )
    compactor = SummaryCompactor(ExtractiveSummarizer(), lambda text: len(text.split()), 300)
    messages = stored(*(say("user", words(40, f"n{n}")) for n in range(1, 13)))

    assert compactor.compact(BranchId(1), [old], messages[1:2]) == (old,)
    (made,) = compactor.compact(BranchId(1), [old], [messages[1], *messages[6:]])
    assert (made.first, made.last, made.level) == (1, 12, 1)


def test_a_summarizer_that_cannot_name_itself_is_named_with_the_reason():
    class Nameless(Fixed):
        @property
        def author(self):
            raise RuntimeError("no name")

    compactor = SummaryCompactor(Nameless("short"), count, 90)

    (made,) = compactor.compact(BranchId(1), (), messages(30, 30))

    assert made.text == "short"
    assert made.author == "Nameless, whose author raised RuntimeError"
