"""How a long text is divided, and which of its parts are shown."""

import time
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentmem.types.passages import (
    estimated_tokens,
    excerpt,
    joined,
    numbered,
    split_passages,
)
from agentmem.types.sentences import OMITTED, sentence_ranges

PLAIN = "The boat leaves at nine, and it takes two hours to the island."
PIECES = st.sampled_from(
    [
        *(PLAIN, "- an item of the list\n", "# Heading\n", "```\n", "x = 1\n", "\n\n", "猫。"),
        *(
            "e\u0301" * 400,
            "word " * 200,
            "a" * 900,
            "🏳️\u200d🌈" * 30,
            "नमस्ते। ",
            "\r\n",
            "...",
            "\u2028",
        ),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=80), max_size=25).map("".join)


def parts(text):
    return [text[start:end] for start, end in split_passages(text)]


@given(TEXTS)
@example("")
@example("word " * 400)
@example("```\n" + "x = 1\n" * 400)
def test_passages_are_the_whole_text_in_order(text):
    ranges = split_passages(text)
    assert "".join(parts(text)) == text
    assert all(start < end for start, end in ranges) or text == ""
    assert ranges == split_passages(text)


@given(TEXTS)
def test_a_passage_has_at_most_its_size_and_divides_no_letter_from_its_marks(text):
    for number, part in enumerate(parts(text)):
        # A letter with all its marks stays whole, and blanks at a border go with the text before.
        blanks = estimated_tokens(part) - estimated_tokens(part.strip())
        assert estimated_tokens(part) - blanks <= 151 or len(part.split()) == 1
        assert number == 0 or not unicodedata.combining(part[0])


@given(st.text(alphabet='ab .!?。"()…1', max_size=200))
def test_sentences_are_the_whole_line_in_order(line):
    ranges = list(sentence_ranges(line))
    assert "".join(line[start:end] for start, end in ranges) == line


def test_up_to_150_tokens_are_one_passage():
    assert len(parts("x" * int(150 * 4.2))) == 1
    assert len(parts("x" * int(150 * 4.2 + 9))) == 2
    assert len(parts("猫" * 211)) == 2


@pytest.mark.parametrize("begins", ["## Cost", "**Cost**", "- the cost", "2. the cost", "```py"])
def test_a_passage_begins_at_a_heading_an_item_or_a_fence(begins):
    text = f"{PLAIN} " * 5 + f"\n{begins}\n" + f"{PLAIN} " * 5
    assert [part.split("\n")[0] for part in parts(text)][1:] == [begins]


def test_a_passage_ends_with_a_sentence():
    assert all(part.strip().endswith(".") for part in parts(f"{PLAIN} " * 60))


@pytest.mark.parametrize(("size", "expected"), [(80, 2), (120, 3)])
def test_a_rest_of_under_24_tokens_is_not_a_passage_of_its_own(size, expected):
    full = f"{'x' * 450}. "
    assert len(parts(full * 2)) == 2
    assert len(parts(full * 2 + "y" * size)) == expected


def test_parts_are_shown_in_order_with_a_mark_at_each_gap():
    text = "one two three four"
    assert excerpt(text, [(14, 18), (0, 4)]) == f"one {OMITTED} four"
    assert excerpt(text, [(4, 8), (8, 13)]) == "two three"
    assert joined([(5, 9), (0, 3), (3, 4), (7, 12)]) == ((0, 4), (5, 12))


def test_passages_are_numbered_from_one():
    text = f"{PLAIN} " * 120
    ranges = split_passages(text)
    assert len(ranges) > 13
    assert numbered(text, ranges[1:3]) == ("2-3", len(ranges))
    assert numbered(text, [ranges[0], ranges[2]]) == ("1, 3", len(ranges))
    assert numbered(text, ranges[:12:2])[0] == "1, 3, 5, 7, 9, 11"
    assert numbered(text, [*ranges[:12:2], ranges[-1]])[0] == f"7 from 1 to {len(ranges)}"
    assert numbered(text, [ranges[-1]]) == (f"{len(ranges)}", len(ranges))


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["word ", "x", "(", '"a. ', "- i\n", "猫", "e\u0301", "```\n", "\n"]
)
def test_a_million_characters_are_divided_in_seconds(unit):
    text = unit * (1_000_000 // len(unit))
    started = time.perf_counter()
    assert "".join(parts(text)) == text
    assert time.perf_counter() - started < 10
