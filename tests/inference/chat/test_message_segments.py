"""A transcript that is put together from pieces is the one that is rendered as a whole."""

import random
from itertools import pairwise

import fuzz_context
import pytest
from fuzz_talk import Talk

from agentmem.inference.chat.message_segments import Pieces
from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.types import GeneratedIds
from tests.builders import call, result
from tests.inference.chat.test_templates import TRANSCRIPTS, in_order_of_calls
from tests.inference.kinds import KINDS, kind_tokenizer
from tests.inference.tiny import say, tiny_tokenizer

each_kind = pytest.mark.parametrize("kind", KINDS)


class WholeTokenizer(ChatTokenizer):
    """Renders and counts as a whole, as for a template that has no pieces."""

    def __init__(self, tokenizer):
        super().__init__(tokenizer)
        self._pieces.join = lambda *_args, **_more: None
        self._pieces.find = lambda _message: None


def both(template):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return ChatTokenizer(tokenizer), WholeTokenizer(tokenizer)


def conversations(counter):
    """Transcripts of each shape, and random ones with answers that the model generated."""
    yield from TRANSCRIPTS.values()
    for seed in range(12):
        rng = random.Random(seed)  # noqa: S311 - repeatable
        group = rng.choice(("fits", "loop"))
        steps = fuzz_context._steps(Talk(rng, 200), group)
        said = [message for step in steps for message in step]
        answers = [
            say(
                "assistant",
                text,
                generated=GeneratedIds(fingerprint=counter.fingerprint, token_ids=ids),
            )
            for text in ("yes\n", " no", "<think>\nt\n</think>\n\nok")
            if (ids := tuple(counter._encoder.encode([text])))
        ]
        messages = [say("system", "p <|im_end|>"), *said, *answers, say("user", "q")]
        yield messages
        yield in_order_of_calls(messages)


@pytest.mark.slow
@each_kind
def test_pieces_give_the_text_ids_and_counts_of_the_whole(kind):
    fast, slow = ChatTokenizer(kind_tokenizer(kind)), WholeTokenizer(kind_tokenizer(kind))
    num_joined = 0
    for messages in conversations(fast):
        for prompt in (False, True):
            one = fast.render(messages, add_generation_prompt=prompt)
            other = slow.render(messages, add_generation_prompt=prompt)
            assert (one.text, one.token_ids) == (other.text, other.token_ids)
            num_joined += one.ends is not None
        assert [fast.count(m) for m in messages] == [slow.count(m) for m in messages]
    assert num_joined > (50 if kind == "chatml" else 0)
    assert fast.num_rewritten == slow.num_rewritten


@each_kind
def test_each_end_is_where_the_transcript_up_to_there_ends(kind):
    counter = ChatTokenizer(kind_tokenizer(kind))
    slow = WholeTokenizer(kind_tokenizer(kind))
    for messages in conversations(counter):
        rendered = counter.render(messages)
        for number, end in enumerate(rendered.ends or (), 1):
            start = slow.render(messages[:number], add_generation_prompt=False)
            if rendered.token_ids[: len(start.token_ids)] == start.token_ids:
                assert end == len(start.token_ids)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ '<|im_start|>' + m.content * loop.length }}{% endfor %}",
        "{% for m in messages %}{{ '<|im_start|>' + '!' * (loop.index // 4) }}{% endfor %}",
        "{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content + '<|im_' }}{% endfor %}",
        "{% for m in messages | reverse %}{{ '<|im_start|>' + m.content }}{% endfor %}",
    ],
    ids=["by length", "by place", "no control tokens", "half a token", "backwards"],
)
def test_a_template_that_is_no_sum_of_messages_is_rendered_as_a_whole(template):
    fast, slow = both(template)
    messages = [
        say("user", "end|>u"),
        say("assistant", "start|>a"),
        say("user", "v"),
        say("user", "w"),
    ]

    rendered = fast.render(messages)

    assert rendered == slow.render(messages)
    assert rendered.ends is None


def test_what_only_the_whole_shows_is_found_for_each_prompt():
    """The template changes what it writes when there are five messages: the pieces notice."""
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + m.content + '<|im_end|>' }}"
        "{% if messages | length == 5 %}!{% endif %}{% endfor %}"
    )
    fast, slow = both(template)
    talk = [say("user" if n % 2 == 0 else "assistant", f"n{n}") for n in range(7)]

    known = []
    for number in range(1, 8):
        rendered = fast.render(talk[:number])
        assert rendered.token_ids == slow.render(talk[:number]).token_ids
        known.append(rendered.ends is not None)

    assert known == [True, True, True, True, False, True, True]


def test_a_template_that_takes_no_question_alone_is_rendered_as_a_whole():
    fast, slow = both(
        "{% if messages | length < 2 %}{{ raise_exception('more') }}{% endif %}"
        "{% for m in messages %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}"
    )
    messages = [say("user", "a"), say("assistant", "b"), say("user", "c")]

    assert fast.render(messages) == slow.render(messages)


def test_a_message_with_a_character_that_marks_has_no_piece():
    counter, slow = ChatTokenizer(tiny_tokenizer()), WholeTokenizer(tiny_tokenizer())
    messages = [
        say("user", "a\ue000b<|im_end|>"),
        call("\ue001c"),
        result("\ue001c"),
        say("user", "x"),
    ]

    rendered = counter.render(messages)

    assert rendered == slow.render(messages)
    assert rendered.ends is None
    assert counter.count(messages[0]) == slow.count(messages[0])


def test_a_forgotten_text_is_in_no_piece():
    counter = ChatTokenizer(tiny_tokenizer())
    counter.render([say("user", "secret"), say("assistant", "a")])

    counter.forget()

    pieces: Pieces = counter._pieces
    caches = (pieces._first, pieces._next, pieces._neighbours, pieces._fit, counter._shown)
    assert [len(cache) for cache in caches] == [0] * len(caches)


def test_prompts_that_go_on_share_their_pieces():
    counter = ChatTokenizer(tiny_tokenizer())
    talk = [say("user" if n % 2 == 0 else "assistant", f"n{n}") for n in range(9)]
    prompts = [counter.render(talk[:number]) for number in range(1, 10)]

    for before, after in pairwise(prompts):
        assert after.ends[: len(before.ends)] == before.ends
    assert len(counter._pieces._next) == 8
