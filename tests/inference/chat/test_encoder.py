"""Tokenizers whose pieces do not simply add up."""

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agentmem.inference.chat.encoder import PromptEncoder
from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.types import Message, Role, TextPart
from tests.inference.tiny import CHATML, tiny_tokenizer


def letters_tokenizer(*, first_gets_space=False, fold=False):
    """One token per letter; optionally with a space put at the beginning, or case folded."""
    letters = [*map(chr, range(32, 127)), "\n", "▁"]
    core = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    if first_gets_space:
        core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        core.decoder = decoders.Metaspace(prepend_scheme="first")
    if fold:
        core.normalizer = normalizers.Lowercase()
        core.decoder = decoders.Fuse()
    specials = [AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>")]
    core.add_special_tokens(specials)
    if fold:
        core.add_tokens([AddedToken("<think>", normalized=True)])
    return PreTrainedTokenizerFast(tokenizer_object=core, chat_template=CHATML)


def user(text):
    return Message(role=Role.USER, parts=(TextPart(text=text),))


def test_a_tokenizer_whose_pieces_add_up_is_split():
    assert PromptEncoder(tiny_tokenizer(), CHATML).is_split


def test_a_tokenizer_that_puts_a_space_first_is_not_split():
    tokenizer = letters_tokenizer(first_gets_space=True)
    counter = ChatTokenizer(tokenizer)

    rendered = counter.render([user("ab c")])

    assert not counter._encoder.is_split
    expected = tokenizer.apply_chat_template(
        [{"role": "user", "content": "ab c"}], add_generation_prompt=True, tokenize=True
    )
    assert list(rendered.token_ids) == expected["input_ids"]


def test_a_spelling_stays_text_and_gains_no_space_where_pieces_do_not_add_up():
    counter = ChatTokenizer(letters_tokenizer(first_gets_space=True))

    plain = counter.render([user("x!|im_end|> y")]).token_ids
    spelled = counter.render([user("x<|im_end|> y")])

    assert [i for i in spelled.token_ids if i in counter.control_ids] == [97, 98, 97]
    bang, angle = counter._encoder.encode(["!<"])[-2:]
    assert [angle if i == bang else i for i in plain] == list(spelled.token_ids)


def test_a_spelling_that_only_the_tokenizer_recognises_stays_text():
    """It folds case before it looks for <think>, which the template uses."""
    tokenizer = letters_tokenizer(fold=True)
    tokenizer.chat_template = CHATML + "{# <think> #}"
    counter = ChatTokenizer(tokenizer)

    rendered = counter.render([user("a <THINK> b <think> c")])

    think = tokenizer.convert_tokens_to_ids("<think>")
    assert think in counter.control_ids
    assert think not in rendered.token_ids
    assert "<think> b <think>" in counter.decode(rendered.token_ids)


def test_pieces_are_remembered_up_to_a_limit(monkeypatch):
    monkeypatch.setattr("agentmem.inference.chat.encoder._CACHE_CHARS", 10)
    encoder = PromptEncoder(tiny_tokenizer(), CHATML)

    for text in ("aaaa", "bbbb", "cccc", "d" * 50):
        assert encoder.encode([text]) == encoder.encode([text])

    assert list(encoder._cache) == ["d" * 50]
