import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.inference.sampling.detokenizer import Detokenizer
from tests.inference.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def decode(token_ids):
    return TOKENIZER.decode(list(token_ids))


def encode(text):
    """One token per byte."""
    return TOKENIZER.encode(text, add_special_tokens=False)


def run(text, *stop, ids=None):
    stream = Detokenizer(decode, stop)
    pieces = []
    for token_id in encode(text) if ids is None else ids:
        pieces.append(stream.add(token_id))
        if stream.stopped:
            break
    pieces.append(stream.finish())
    assert "".join(pieces) == stream.text
    return stream, pieces


def test_a_character_comes_whole_when_its_last_byte_comes():
    _, pieces = run("é🙂!")

    assert pieces == ["", "é", "", "", "", "🙂", "!", ""]


def test_a_character_that_never_ends_is_left_out_and_so_are_its_ids():
    ids = encode("ok 🙂")[:-1]
    stream, _ = run("", ids=ids)

    assert stream.text == "ok "
    assert stream.spelling_ids() == tuple(ids[:3])


def test_bytes_that_are_no_character_are_shown_as_such_when_the_text_goes_on():
    ids = [encode("é")[0], *encode("a")]
    stream, pieces = run("", ids=ids)

    assert pieces == ["", "\ufffda", ""]
    assert stream.spelling_ids() == tuple(ids)


def test_a_stop_string_over_several_tokens_ends_the_text_before_it():
    stream, pieces = run("Hello.\nUser: no", "\nUser:")

    assert stream.stopped
    assert stream.text == "Hello."
    assert pieces[:7] == ["H", "e", "l", "l", "o", ".", ""]
    assert stream.spelling_ids() == tuple(encode("Hello."))


def test_text_that_only_begins_like_a_stop_string_is_given_in_the_end():
    stream, pieces = run("a\nUs", "\nUser:")

    assert not stream.stopped
    assert pieces == ["a", "", "", "", "\nUs"]


def test_the_stop_string_that_comes_first_wins():
    assert run("one two three", "three", "two", "tw")[0].text == "one "


def test_of_two_stop_strings_in_one_token_the_first_in_the_text_wins():
    stream = Detokenizer(lambda ids: "one two three" if ids else "", ["three", "two"])

    assert stream.add(1) == stream.text == "one "


def test_a_stop_string_in_the_middle_of_a_token_leaves_no_ids_that_would_spell_more():
    words = {1: "Hello", 2: " wor", 3: "ld"}
    stream = Detokenizer(lambda ids: "".join(words[i] for i in ids), ["or"])
    stream.add(1)
    stream.add(2)

    assert stream.text == "Hello w"
    assert stream.spelling_ids() == ()


def test_a_decoder_that_needs_all_bytes_of_a_run_is_waited_for():
    """Byte-fallback decoders spell a run of bytes as U+FFFD each until the run is complete."""

    def spell(ids):
        data = bytes(ids)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(data)

    stream = Detokenizer(spell)
    pieces = [stream.add(byte) for byte in "你好".encode()]

    assert pieces == ["", "", "你", "", "", "好"]


@given(st.text(max_size=12), st.lists(st.text("ab", min_size=1, max_size=3), max_size=2))
def test_the_pieces_make_the_text_up_to_the_first_stop_string(text, stop):
    stream, pieces = run(text, *stop)

    ends = [at for s in stop if (at := text.find(s)) >= 0]
    # One that was complete earlier cuts earlier, even if a longer one had begun before it.
    assert stream.text == "".join(pieces)
    assert text.startswith(stream.text)
    assert stream.stopped == bool(ends)
    if not ends:
        assert stream.text == text
        assert stream.spelling_ids() == (tuple(encode(text)) if text else ())
    for piece in pieces:
        assert not any(s in piece for s in stop)


@pytest.mark.parametrize("num_bytes", range(1, 5))
def test_a_tail_of_any_length_is_cut_back(num_bytes):
    ids = encode("x" + "🙂" * 2)[: 1 + num_bytes]

    expected = "x🙂" if num_bytes == 4 else "x"
    assert run("", ids=ids)[0].text == expected
