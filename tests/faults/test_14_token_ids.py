"""Ids, text and logprobs of a generation belong together, wherever a stop string ends it."""

import itertools

import pytest
import torch

from agentmem import Memory, Sampling
from agentmem.inference.engine.request_state import RequestState
from agentmem.protocols import Chunk, GenerationRequest
from agentmem.testing import ScriptedModel
from agentmem.types import FinishReason, Generation, Usage
from tests.builders import say

# Each is one token; the last two are the bytes of one character, the first ends the text.
WORDS = (
    "",
    "Hello",
    " there",
    " the",
    "re",
    "\n\n",
    "User:",
    "<|control|>",
    "a",
    "\ufffd",
    "\ufffd",
)
CONTROL = WORDS.index("<|control|>")
EURO = (9, 10)


class Spelling:
    """Spells words as the counter of a model spells its tokens."""

    control_ids = frozenset({0, CONTROL})

    def decode(self, token_ids):
        spelled = "".join(WORDS[i] for i in token_ids)
        return spelled.replace("\ufffd\ufffd", "é")


def generate(token_ids, *, stop=(), logprobs=0, max_tokens=None):
    """Run a request whose model is sure of the next token."""
    sampling = Sampling(stop=stop, logprobs=logprobs)
    request = GenerationRequest(token_ids=(1, 2), sampling=sampling)
    output = RequestState(
        request, Spelling(), frozenset({0}), max_tokens=max_tokens or len(token_ids), started=0.0
    )
    for token_id in token_ids:
        logits = torch.full((len(WORDS),), -50.0)
        logits[token_id] = 50.0
        if output.take(logits) is None:
            break
    chunk = output.next_chunk()
    while chunk.result is None:
        chunk = output.next_chunk()
    return chunk.result


def assert_they_belong_together(result):
    spelled = Spelling().decode(result.token_ids)
    assert spelled.startswith(result.text)
    assert result.is_exact == (spelled == result.text)
    named = [one.token_id for one in result.logprobs]
    assert named[: len(result.token_ids)] == list(result.token_ids)
    assert len(named) == result.usage.completion_tokens


def test_a_stop_string_inside_a_token_leaves_the_ids_that_begin_with_the_text():
    result = generate((1, 2, 8, 0), stop=("ere",))
    assert (result.text, result.token_ids) == ("Hello th", (1, 2))
    assert not result.is_exact
    assert_they_belong_together(result)


@pytest.mark.parametrize(
    ("token_ids", "stop", "text", "kept"),
    [
        ((1, 3, 4, 0), ("ere",), "Hello th", (1, 3)),  # it begins in one token, ends in the next
        ((1, 2, 5, 6, 0), ("\nUser",), "Hello there\n", (1, 2, 5)),
        ((1, 2, 5, 6, 0), ("\n\nUser:",), "Hello there", (1, 2)),
        ((1, 2), ("Hell",), "", ()),
        ((2, 0), ("there",), " ", (2,)),
        ((1, *EURO, 2, 0), ("he",), "Helloé t", (1, *EURO, 2)),
        ((1, *EURO, 2, 0), ("é t",), "Hello", (1,)),
        ((1, 2, 0), (), "Hello there", (1, 2)),
        ((1, 9), (), "Hello", (1,)),  # a character that never ended
        ((8,) * 99 + (2, 0), ("e" + "re",), "a" * 99 + " th", (8,) * 99 + (2,)),
        ((8, *(5,) * 90, 6, 0), ("\n" * 179 + "User:",), "a\n", (8, 5)),  # longer than is cut back
    ],
)
def test_ids_are_those_that_the_text_is_the_beginning_of(token_ids, stop, text, kept):
    result = generate(token_ids, stop=stop)
    assert (result.text, result.token_ids) == (text, kept)
    assert_they_belong_together(result)


@pytest.mark.slow
def test_every_stop_string_of_every_text_leaves_what_belongs_together():
    for token_ids in itertools.product((1, 2, 3, 4, 8), repeat=3):
        spelled = Spelling().decode(token_ids)
        for first, last in itertools.combinations(range(len(spelled) + 1), 2):
            if last - first <= 3:
                assert_they_belong_together(generate(token_ids, stop=(spelled[first:last],)))


def test_a_control_token_in_the_text_leaves_no_ids_and_says_so():
    result = generate((1, CONTROL, 2, 0))
    assert (result.text, result.token_ids, result.is_exact) == ("Hello<|control|> there", (), False)


def test_an_empty_answer_is_exact():
    result = generate((0,))
    assert (result.text, result.token_ids, result.is_exact) == ("", (), True)


class Cut(ScriptedModel):
    """Ends inside a token."""

    def stream(self, request):  # noqa: ARG002 - what a model is asked
        usage = Usage(prompt_tokens=1, cached_tokens=0, completion_tokens=1, ttft_s=0, total_s=0)
        result = Generation(
            text="Hel",
            token_ids=(99,),
            is_exact=False,
            usage=usage,
            finish_reason=FinishReason.STOP,
        )
        yield Chunk(text="Hel", result=result)


def test_ids_that_spell_more_are_not_kept_with_the_answer():
    with Memory.open("sqlite://", model=Cut()) as memory:
        session = memory.session("s")
        reply = session.reply("Hi")
        assert reply.text == "Hel"
        assert session.messages()[-1].message == say("assistant", "Hel")
