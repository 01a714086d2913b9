"""
A small chat template of each kind that models come with, and a tokenizer that has its tokens.

Each refuses, drops, trims and moves what its kind does: Llama-3 takes one call at a time and
drops the text beside it, Qwen3 shows no thoughts of the past and makes one user turn of all
results, Gemma knows no system and no tools, Mistral wants ids of nine letters and moves the system
text to the end.
"""

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from agentmem.inference.chat.tokenizer import ChatTokenizer

CHATML = """\
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
"""

LLAMA3 = """\
{{- bos_token -}}
{%- for m in messages -%}
{%- set role = 'ipython' if m.role == 'tool' else m.role -%}
{{ '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}
{%- if m.tool_calls -%}
{%- if m.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif -%}
{%- set call = m.tool_calls[0].function -%}
{{ '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}' }}
{%- else %}{{ m.content | trim }}{% endif -%}
{{ '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif -%}
"""

QWEN3 = """\
{%- set found = namespace(asked=messages | length - 1, is_open=true) -%}
{%- for m in messages | reverse -%}
{%- if found.is_open and m.role == 'user' and not m.content.startswith('<tool_response>') -%}
{%- set found.asked = messages | length - loop.index -%}
{%- set found.is_open = false -%}
{%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
{%- if m.role == 'system' and not loop.first %}{{ raise_exception('system first') }}{% endif -%}
{%- if m.role == 'assistant' -%}
{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\n')
    if '</think>' in m.content else '' -%}
{{ '<|im_start|>assistant\n' }}
{%- if loop.index0 > found.asked and (loop.last or thought) -%}
{{ '<think>\n' + thought + '\n</think>\n\n' }}
{%- endif -%}
{%- set content = m.content.split('</think>')[-1].lstrip('\n') -%}
{{ content }}
{%- for call in m.tool_calls or [] -%}
{{ '\n' if content or not loop.first else '' }}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson + '}\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\n' }}
{%- elif m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif -%}
{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif -%}
{%- else -%}
{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
"""

GEMMA = """\
{{- bos_token -}}
{%- for m in messages -%}
{%- if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('user and assistant take turns') }}
{%- endif -%}
{%- set role = 'model' if m.role == 'assistant' else m.role -%}
{{ '<start_of_turn>' + role + '\n' + m.content | trim + '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif -%}
"""

MISTRAL = """\
{%- set system = messages[0].content + '\n\n' if messages[0].role == 'system' else '' -%}
{%- set said = messages[1:] if system else messages -%}
{%- set turns = namespace(count=0) -%}
{%- for m in said -%}
{%- if m.role == 'user' or (m.role == 'assistant' and m.tool_calls is undefined) -%}
{%- if (m.role == 'user') != (turns.count % 2 == 0) -%}
{{ raise_exception('user and assistant take turns') }}
{%- endif -%}
{%- set turns.count = turns.count + 1 -%}
{%- endif -%}
{%- endfor -%}
{{ bos_token }}
{%- for m in said -%}
{%- if m.role == 'user' -%}
{{ '[INST] ' + (system if loop.last else '') + m.content + '[/INST]' }}
{%- elif m.tool_calls -%}
{{ '[TOOL_CALLS] [' }}
{%- for call in m.tool_calls -%}
{%- if call.id | length != 9 %}{{ raise_exception('ids have 9 letters') }}{% endif -%}
{{ (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' + ('' if loop.last else ', ') }}
{%- endfor -%}
{{ ']' + eos_token }}
{%- elif m.role == 'assistant' -%}
{{ ' ' + m.content | trim + eos_token }}
{%- elif m.role == 'tool' -%}
{%- if m.tool_call_id | length != 9 %}{{ raise_exception('ids have 9 letters') }}{% endif -%}
{{ '[TOOL_RESULTS] {"content": ' + m.content | tojson + ', "call_id": "' + m.tool_call_id }}
{{- '"}[/TOOL_RESULTS]' }}
{%- else %}{{ raise_exception('no such role') }}
{%- endif -%}
{%- endfor -%}
"""

TEMPLATES = {
    "chatml": CHATML,
    "llama3": LLAMA3,
    "qwen3": QWEN3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
}
KINDS = tuple(TEMPLATES)

# The first begins every text, the second ends an answer.
TOKENS = {
    "chatml": ("<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
    "qwen3": ("<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "gemma": ("<bos>", "<end_of_turn>", "<start_of_turn>"),
    "mistral": (
        *("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]"),
        "[/TOOL_RESULTS]",
    ),
}
WORDS = {
    "qwen3": (
        *("<think>", "</think>", "<tool_call>", "</tool_call>"),
        *("<tool_response>", "</tool_response>"),
    ),
}
"""Tokens of their own that the tokenizer does not call special."""

_TEXTS = (
    "the hotel costs 92 EUR a night.\n\nnever exceed 500 EUR ab ab",
    "我们周五去里斯本。预算是五百欧元",
    'São Bento, ação, café — accord 😀👨‍👩‍👧 ok 🇵🇹 {"price": 92.5, "tags": ["a", "b"]}',
    "ignore the budget [left out to save room; message 12 has it] [... clipped; message 3 has all",
    "assistant\n<tool_call>\nuser\n<tool_response>\nsystem\n aaaaaaaaaaaaaaaa    \n\n\n  ",
    "Summary of the earlier conversation: Recalled from the earlier conversation:\n",
)


@cache
def _core():
    """
    A BPE tokenizer in JSON, trained on a few lines.

    It does not split words, so that merges reach over the places where texts are joined.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, max_token_length=8, show_progress=False
    )
    core.train_from_iterator(_TEXTS * 3, trainer)
    return core.to_str()


def kind_tokenizer(kind):
    """A small BPE tokenizer with the template and the tokens of that kind."""
    core = Tokenizer.from_str(_core())
    return with_kind(PreTrainedTokenizerFast(tokenizer_object=core), kind)


def with_kind(tokenizer, kind):
    """Give *tokenizer* the template and the tokens of that kind."""
    added = [AddedToken(text, special=True, normalized=False) for text in TOKENS[kind]]
    added += [AddedToken(t, special=False, normalized=False) for t in WORDS.get(kind, ())]
    tokenizer.add_tokens(added[: len(TOKENS[kind])], special_tokens=True)
    tokenizer.add_tokens(added[len(TOKENS[kind]) :])
    tokenizer.bos_token, tokenizer.eos_token = TOKENS[kind][:2]
    tokenizer.chat_template = TEMPLATES[kind]
    return tokenizer


@cache
def kind_counter(kind):
    return ChatTokenizer(kind_tokenizer(kind))
