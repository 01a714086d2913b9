"""Each step that shortens a prompt, by itself."""

from dataclasses import replace

import pytest

from agentmem.config import Budget
from agentmem.context import ExtractiveSummarizer, Policy
from agentmem.context.compaction import SummaryCompactor
from agentmem.context.draft import SUMMARY_HEADING, Draft, RecalledGroup
from agentmem.context.drop_recalled import drop_hits, drop_recalled_groups
from agentmem.context.drop_summaries import drop_summaries, within_share
from agentmem.context.fit_prompt import STEPS, fit_prompt
from agentmem.context.prompt_messages import show
from agentmem.context.render import Renderer
from agentmem.context.slide_window import MAX_LEFT, drop_units, summary_growth
from agentmem.context.step_inputs import Slide, StepInputs
from agentmem.protocols import Hit
from agentmem.testing import WordCounter
from agentmem.types import BranchId, Summary
from tests.builders import say, stored, words

RENDERER = Renderer(WordCounter())


def inputs(prompt, *, found=(), **shares):
    return StepInputs(
        renderer=RENDERER,
        budget=Budget(context=prompt + 1, reply=1, **shares),
        policy=Policy(),
        slide=Slide.AS_NEEDED,
        found=found,
    )


def compactor(max_tokens=60):
    return SummaryCompactor(ExtractiveSummarizer(), RENDERER.count_text, max_tokens)


def draft(*texts, summaries=(), compactor=None, start=1):
    """A question of each of *texts*, the last one as the current turn."""
    *older, core = (show(one) for one in stored(*(say("user", t) for t in texts), start=start))
    return Draft(
        branch_id=BranchId(1),
        pins=(),
        summaries=tuple(summaries),
        older=tuple((one,) for one in older),
        rounds=(),
        core=(core,),
        loaded={},
        compactor=compactor,
    )


def summary(first, last, text):
    return Summary(
        branch_id=BranchId(1),
        first=first,
        last=last,
        level=0,
        text=text,
        author="a",
        source_hash="h",
    )


def hit(position, text, score):
    (one,) = stored(say("user", text), start=position)
    return Hit(stored=one, score=score)


def test_the_steps_are_in_the_order_of_what_is_lost():
    assert [step.shorten.__name__ for step in STEPS] == [
        "clip_core",
        "stub_discardable",
        "slide_window",
        "drop_hits",
        "drop_recalled_groups",
        "drop_summaries",
    ]


def test_the_weakest_hit_is_dropped_first():
    best, weakest = hit(1, "best of all", 0.9), hit(2, "weak but found", 0.1)
    full = replace(draft(words(20), start=5), hits=(best, weakest))
    limit = RENDERER.size(full) - 1

    shortened = drop_hits(full, inputs(limit, found=(best, weakest), retrieved=0.8))

    assert shortened.hits == (best,)


def test_hits_stay_out_where_the_prompt_is_too_long_without_them():
    found = (hit(1, "best of all", 0.9),)
    full = replace(draft(words(20), start=5), hits=found)

    assert drop_hits(full, inputs(10, found=found, retrieved=0.8)).hits == ()


def test_the_oldest_summary_is_dropped_first_and_no_more_than_needed():
    old, new = summary(1, 2, words(9, "old")), summary(3, 4, words(9, "new"))
    full = draft(words(20), summaries=(old, new), start=5)
    limit = RENDERER.size(full) - 1

    assert drop_summaries(full, inputs(limit)).summaries == (new,)


@pytest.mark.parametrize(("num_leaving", "size"), [(90, 20), (40, 20), (36, 18)])
def test_room_is_reserved_for_a_summary_of_what_leaves_and_its_heading(num_leaving, size):
    """Of 60 tokens for all summaries one takes at most a third, and at most half of its text."""
    first = draft("now", compactor=compactor())
    heading = RENDERER.count_text(SUMMARY_HEADING)
    later = replace(first, summaries=(summary(1, 2, "said"),))
    given = inputs(80, summary=0.5)

    assert summary_growth(first, given, num_leaving) == size + heading
    assert summary_growth(later, given, num_leaving) == size


def test_no_room_is_reserved_without_a_summarizer_or_where_the_share_is_spent():
    spent = summary(1, 2, words(60))

    assert summary_growth(draft("now"), inputs(80, summary=0.5), 40) == 0
    full = draft("now", summaries=(spent,), compactor=compactor())
    assert summary_growth(full, inputs(80, summary=0.5), 40) == 0


@pytest.mark.parametrize(("low_water", "margin"), [(1.0, 0), (0.5, 20), (0.0, 40)])
def test_a_slide_leaves_free_half_of_what_is_between_low_water_and_a_full_window(low_water, margin):
    one = draft(words(10))
    given = replace(inputs(80), budget=Budget(context=81, reply=1, low_water=low_water))

    assert given.margin(one) == pytest.approx(margin, abs=1)


def test_the_oldest_summary_leaves_first_where_all_are_over_their_share():
    old, new = summary(1, 2, words(9, "old")), summary(3, 4, words(9, "new"))
    given = inputs(60, summary=RENDERER.count_text(new.text))

    assert within_share(draft("now", summaries=(old, new), start=5), given).summaries == (new,)


def test_a_kept_group_is_dropped_before_a_summary_is():
    group = RecalledGroup(anchor=5, hits=(hit(1, words(9), 0.5),))
    full = replace(draft(words(20), summaries=(summary(1, 4, "said"),), start=5), groups=(group,))

    shortened = drop_recalled_groups(full, inputs(RENDERER.size(full) - 1))

    assert (shortened.groups, len(shortened.summaries)) == ((), 1)


def test_a_stub_that_makes_the_prompt_only_just_fit_does_not_spare_the_slide():
    older, now = draft(words(30), words(30)), draft(words(40), words(20))
    step = next(step for step in STEPS if step.shorten.__name__ == "stub_discardable")
    given = inputs(RENDERER.size(older) + 1)

    assert not step.is_enough(older, given)
    assert step.is_enough(now, inputs(RENDERER.size(now) + 40))


@pytest.mark.parametrize(("leave_to", "left"), [(0, 2), (1, 1), (2, 0)])
def test_a_window_that_fits_drops_what_a_compaction_ahead_has_covered(leave_to, left):
    full = replace(draft("one", "two", "three"), leave_to=leave_to)

    fitted, _ = fit_prompt(full, inputs(200))

    assert len(fitted.older) == left


def test_the_newest_of_what_left_without_a_summary_are_summed_up_with_what_leaves():
    said = stored(*(say("user", f"w{n}") for n in range(MAX_LEFT + 10)))
    *_, leaving, core = (show(one) for one in said)
    full = Draft(
        branch_id=BranchId(1),
        pins=(),
        summaries=(),
        older=((leaving,),),
        rounds=(),
        core=(core,),
        loaded={one.position: one for one in said},
        compactor=compactor(999),
    )

    (made,) = drop_units(full, 1).summaries

    assert (made.first, made.last) == (leaving.position - MAX_LEFT, leaving.position)
