from agentmem.context import check_conservation
from agentmem.types import (
    AssemblyId,
    AssemblyInfo,
    BranchId,
    DisplayForm,
    Span,
    Tier,
    TruncationReason,
    TruncationRecord,
)
from tests.builders import NOON


def assembly(*layout, head, number=1):
    return AssemblyInfo(
        id=AssemblyId(number),
        branch_id=BranchId(1),
        head=head,
        tokens_by_tier={},
        layout=layout,
        prompt_hash="",
        pins=(),
        context=2,
        reply=1,
        fingerprint="words",
        created_at=NOON,
    )


def record(first, last, number=1):
    return TruncationRecord(
        branch_id=BranchId(1),
        first=first,
        last=last,
        tier=Tier.RECENT,
        reason=TruncationReason.WINDOW,
        num_tokens=None,
        room=0,
        destination="store",
        assembly_id=AssemblyId(number),
    )


LEFT = Span(first=1, last=2, tier=None)
SHOWN = Span(first=3, last=4, tier=Tier.CURRENT)


def test_shown_or_named_is_balanced():
    assert check_conservation([assembly(LEFT, SHOWN, head=4)], [record(1, 2)]) == ()


def test_two_records_may_name_one_run():
    assert check_conservation([assembly(LEFT, SHOWN, head=4)], [record(2, 2), record(1, 1)]) == ()


def test_a_message_that_no_record_names_is_found():
    (found,) = check_conservation([assembly(LEFT, SHOWN, head=4)], [record(1, 1)])

    assert found.spans == (Span(first=2, last=2, tier=None),)
    assert found.problem == "left out without a record"


def test_a_record_of_a_later_assembly_does_not_count():
    assert check_conservation([assembly(LEFT, SHOWN, head=4)], [record(1, 2, number=2)]) != ()


def test_a_message_outside_the_layout_is_found():
    (found,) = check_conservation([assembly(SHOWN, head=4)], [])

    assert found.spans == (LEFT,)
    assert found.problem == "not in the layout"


def test_a_message_that_is_in_the_layout_twice_is_found():
    layout = (LEFT, Span(first=2, last=4, tier=Tier.CURRENT))

    (found,) = check_conservation([assembly(*layout, head=4)], [record(1, 2)])

    assert found.problem == "in the layout twice"


def test_what_a_summary_covers_needs_a_record_and_the_summary():
    covered = Span(first=1, last=2, tier=Tier.SUMMARY, source="abc")
    balanced = [assembly(covered, SHOWN, head=4)]

    assert check_conservation(balanced, [record(1, 2)], {"abc"}) == ()
    (unnamed,) = check_conservation(balanced, [], {"abc"})
    assert unnamed.problem == "left out without a record"
    (lost,) = check_conservation(balanced, [record(1, 2)], set())
    assert lost.problem == "covered by a missing summary"


def test_a_clipped_message_needs_a_record():
    clipped = Span(first=1, last=1, tier=Tier.CURRENT, form=DisplayForm.CLIPPED, kept_chars=5)

    assert check_conservation([assembly(clipped, head=1)], [record(1, 1)]) == ()
    assert check_conservation([assembly(clipped, head=1)], []) != ()
