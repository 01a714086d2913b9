"""The log of prompts stays short where messages are recalled, and says as much as before."""

import random
import sqlite3
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem import Budget, Memory, Policy
from agentmem.retrieval import HybridRetriever
from agentmem.store.prompt_log.layout_codec import (
    decode_layout,
    decode_ranges,
    encode_layout,
    encode_ranges,
)
from agentmem.store.prompt_log.row_codec import encode_span, to_span
from agentmem.testing import HashingEmbedder, WordCounter
from agentmem.types import DisplayForm, Span, Tier, TruncationReason

WORDS = [f"w{number}" for number in range(120)]
LIMIT = 800
TURNS = 60


def text_of(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(8, 30)))


def play(url, *, budget, policy=None, embedder=None, turns=TURNS):
    """Play turns with recall; give the prompts, and what the log says of them."""
    rng = random.Random(7)  # noqa: S311 - a test
    prompts = []
    with Memory.open(
        url,
        counter=WordCounter(),
        retriever=HybridRetriever(embedder),
        budget=budget,
        policy=policy or Policy(),
    ) as memory:
        session = memory.session("s")
        for _ in range(turns):
            session.append("user", text_of(rng))
            prompts.append(session.assemble())
            session.append("assistant", text_of(rng))
        assert session.check() == ()
        return prompts, session.assemblies(), session.truncations()


def log_bytes(path):
    """Measure the pages of the log's tables and their indexes."""
    connection = sqlite3.connect(path)
    names = "SELECT name FROM sqlite_schema WHERE tbl_name IN ('assembly', 'truncation')"
    (size,) = connection.execute(
        f"SELECT sum(pgsize) FROM dbstat WHERE name IN ({names})"  # noqa: S608 - our own words
    ).fetchone()
    connection.close()
    return size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "embedder"),
    [
        (Policy(), None),
        (Policy(), HashingEmbedder(dimension=32)),
        (Policy(summarizer=None), None),
        (Policy(keep_recalled=True), None),
    ],
)
def test_a_prompt_with_recall_takes_less_than_800_bytes_of_log(tmp_path, policy, embedder):
    path = tmp_path / "m.db"
    budget = Budget(context=1024, reply=128)
    prompts, _, _ = play(f"sqlite:///{path}", budget=budget, policy=policy, embedder=embedder)
    assert any(prompt.recalled for prompt in prompts)
    assert log_bytes(path) / len(prompts) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("summarizer", [True, False])
def test_the_log_says_of_each_prompt_what_the_prompt_said(tmp_path, summarizer):
    policy = Policy() if summarizer else Policy(summarizer=None)
    url = f"sqlite:///{tmp_path}/m.db"
    prompts, infos, records = play(url, budget=Budget(context=300, reply=40), policy=policy)
    assert [info.layout for info in infos] == [prompt.layout for prompt in prompts]
    assert [info.tokens_by_tier for info in infos] == [p.tokens_by_tier for p in prompts]
    assert list(records) == [record for prompt in prompts for record in prompt.truncations]
    assert len(records) > TURNS


@pytest.mark.slow
def test_runs_that_one_prompt_left_out_for_one_reason_are_one_row(tmp_path):
    path = tmp_path / "m.db"
    policy = Policy(summarizer=None)
    budget = Budget(context=1024, reply=128)
    _, infos, records = play(f"sqlite:///{path}", budget=budget, policy=policy)
    again = [record for record in records if record.reason is TruncationReason.NOT_RETRIEVED]
    assert len(again) > len(infos)
    connection = sqlite3.connect(path)
    (num,) = connection.execute("SELECT count(*) FROM truncation").fetchone()
    connection.close()
    assert num < len(records) / 1.5


@pytest.mark.slow
def test_an_export_has_the_same_log_after_its_import(tmp_path):
    url = f"sqlite:///{tmp_path}/m.db"
    play(url, budget=Budget(context=300, reply=40), turns=40)
    with Memory.open(url, counter=WordCounter()) as memory:
        memory.export(tmp_path / "e.jsonl")
        session = memory.session("s")
        before = session.assemblies(), session.truncations()
    with Memory.open(f"sqlite:///{tmp_path}/n.db", counter=WordCounter()) as memory:
        memory.load(tmp_path / "e.jsonl")
        session = memory.session("s")
        after = session.assemblies(), session.truncations()
        assert session.check() == ()
    plain = [
        tuple(replace(one, branch_id=0, **{name: 0}) for one in half)
        for pair in (before, after)
        for half, name in zip(pair, ("id", "assembly_id"), strict=True)
    ]
    assert plain[:2] == plain[2:]


PASSAGES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(10, 10**7)), min_size=1, max_size=3
).map(tuple)


@st.composite
def layouts(draw):
    spans, end = [], 0
    for _ in range(draw(st.integers(0, 6))):
        length = draw(st.sampled_from([1, 2, 30, 10**7]))
        tier = draw(st.sampled_from([None, *Tier]))
        form = draw(st.sampled_from(DisplayForm))
        is_part = form is DisplayForm.PASSAGES
        spans.append(
            Span(
                first=end + 1,
                last=end + length,
                tier=tier,
                form=form,
                **{
                    "anchor" if tier is Tier.RETRIEVED else "kept_chars": draw(
                        st.none() | st.integers(0, 99)
                    )
                },
                source=draw(st.none() | st.sampled_from(["a", "b c", "s0", ""])),
                times=draw(st.integers(1, 3)),
                passages=draw(PASSAGES) if is_part else (),
            )
        )
        end += length
    return tuple(spans)


@given(layouts())
def test_a_layout_is_read_as_it_was_written(layout):
    assert decode_layout(encode_layout(layout)) == layout


def test_the_number_of_a_span_is_read_by_its_tier_in_both_written_forms():
    """Both forms are those of versions in which one field was either of the two."""
    expected = (
        Span(first=1, last=1, tier=Tier.RETRIEVED, anchor=2, times=3),
        Span(first=2, last=2, tier=Tier.RECENT, form=DisplayForm.CLIPPED, kept_chars=7),
    )
    cells = [[1, 1, "retrieved", "full", 2, None, 3], [2, 2, "recent", "clipped", 7]]

    assert decode_layout({"runs": "rk2x3 wCk7"}) == expected
    assert tuple(to_span(one) for one in cells) == expected
    assert encode_layout(expected) == {"runs": "rk2x3 wCk7"}
    assert [encode_span(span) for span in expected] == cells


@pytest.mark.parametrize(
    "layout",
    [
        (Span(first=2, last=3, tier=None),),
        (Span(first=1, last=3, tier=None), Span(first=3, last=4, tier=Tier.RECENT)),
    ],
)
def test_a_layout_that_has_a_position_twice_or_not_at_all_is_not_shortened(layout):
    assert encode_layout(layout) is None


@given(
    st.lists(
        st.tuples(st.integers(1, 99), st.integers(1, 99), st.none() | st.integers(0, 9)),
        min_size=1,
    )
)
def test_runs_are_read_as_they_were_written(runs):
    assert decode_ranges(encode_ranges(runs)) == runs


@pytest.mark.parametrize("damaged", ["", "1-", "a", "1:x", "1,2", "-1-2"])
def test_damaged_runs_are_an_error_of_value(damaged):
    with pytest.raises(ValueError, match="run of positions"):
        decode_ranges(damaged)


@pytest.mark.parametrize(
    "damaged",
    [{}, {"runs": 3}, {"runs": "5z"}, {"runs": "s0"}, {"runs": "s0", "of": {}}, {"runs": "5"}],
)
def test_a_damaged_layout_is_an_error_of_value(damaged):
    with pytest.raises(ValueError, match="layout"):
        decode_layout(damaged)
