"""
A small chat template of each family that thinks, and a model that says what it is told to.

Qwen3 shows the thoughts of the tool loop that goes on, R1 opens a thought in the prompt, gpt-oss
writes in channels and takes a thought or a text beside a call, Magistral has control tokens for it.
"""

from functools import cache

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.protocols import Chunk
from agentmem.types import FinishReason, Generation, Usage
from tests.inference.kinds import _core

_HEAD = """\
{%- set found = namespace(asked=-1) -%}
{%- for m in messages if m.role == 'user' %}{% set found.asked = messages.index(m) %}{% endfor -%}
{%- for m in messages -%}
{%- set shows = loop.index0 > found.asked -%}
"""
_CALLS = """\
{%- for call in m.tool_calls or [] -%}
{{ '<tool_call>' + call.function.name + ' ' + call.function.arguments | tojson + '</tool_call>' }}
{%- endfor -%}
"""


QWEN = (
    _HEAD
    + """\
{%- set content = m.content.split('</think>')[-1].lstrip('\n') -%}
{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content is string and shows -%}
{{ '<think>\n' + m.reasoning_content.strip('\n') + '\n</think>\n\n' }}
{%- endif -%}
{{ content }}"""
    + _CALLS
    + """\
{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
"""
)
R1 = """\
{%- for m in messages -%}
{%- set content = m.content.split('</think>')[-1] if m.role == 'assistant' else m.content -%}
{{ '<|im_start|>' + m.role + '\n' + content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif -%}
"""
GPT_OSS = (
    _HEAD
    + """\
{%- if m.role == 'assistant' -%}
{%- if '<|channel|>' in m.content %}{{ raise_exception('channels in a text') }}{% endif -%}
{%- if m.tool_calls -%}
{%- if m.content and m.thinking %}{{ raise_exception('thought and text') }}{% endif -%}
{%- if m.thinking and shows -%}
{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}
{%- endif -%}
{%- if m.content -%}
{{ '<|start|>assistant<|channel|>commentary<|message|>' + m.content + '<|end|>' }}
{%- endif -%}
{%- for call in m.tool_calls -%}
{{ '<|start|>assistant to=' + call.function.name + '<|message|>' }}
{{- call.function.arguments | tojson + '<|call|>' }}
{%- endfor -%}
{%- else -%}
{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}
{%- endif -%}
{%- else -%}
{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif -%}
"""
)
MAGISTRAL = """\
{{- '[SYSTEM]Think between [THINK] and [/THINK].[/SYSTEM]' -}}
{%- for m in messages -%}
{{ '[INST]' + m.content + '[/INST]' if m.role != 'assistant' else m.content + '</s>' }}
{%- endfor -%}
"""
SEED = (
    _HEAD
    + """\
{{ '<seed:bos>' + m.role }}
{%- if m.reasoning_content is string and m.reasoning_content -%}
{{ '\n<seed:think>' + m.reasoning_content | trim + '</seed:think>' }}
{%- endif -%}
{{ '\n' + m.content + """
    + "''}}"
    + _CALLS
    + """\
{{ '<seed:eos>' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<seed:bos>assistant\n' }}{% endif -%}
"""
)
COHERE = """\
{#- <|START_THINKING|> <|END_THINKING|> -#}
{%- for m in messages -%}
{{ '<|START_OF_TURN|>' + m.role + '|' + m.content + '<|END_OF_TURN|>' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|START_OF_TURN|>assistant|' }}{% endif -%}
"""

TEMPLATES = {
    "qwen": QWEN,
    "r1": R1,
    "gpt-oss": GPT_OSS,
    "magistral": MAGISTRAL,
    "seed": SEED,
    "cohere": COHERE,
}
# The first begins a text, the second ends an answer; those after the bar are not special.
_TOKENS = {
    "qwen": "<|endoftext|> <|im_end|> <|im_start|> | <think> </think> <tool_call> </tool_call>",
    "r1": "<|endoftext|> <|im_end|> <|im_start|> | <think> </think>",
    "gpt-oss": "<|endoftext|> <|return|> <|start|> <|end|> <|channel|> <|message|> <|call|>",
    "magistral": "<s> </s> [INST] [/INST] [SYSTEM] [/SYSTEM] [THINK] [/THINK]",
    "seed": "<seed:bos> <seed:eos> <seed:think> </seed:think>",
    "cohere": "<|START_OF_TURN|> <|END_OF_TURN|> <|START_THINKING|> <|END_THINKING|>"
    " <|START_RESPONSE|> <|END_RESPONSE|>",
}
SAID = {
    "qwen": "<think>\nT1 never\n</think>\n\nA1 ab",
    "r1": "T1 never\n</think>\n\nA1 ab",
    "gpt-oss": "<|channel|>analysis<|message|>T1 never<|end|>"
    "<|start|>assistant<|channel|>final<|message|>A1 ab",
    "magistral": "[THINK]T1 never[/THINK]A1 ab",
    "seed": "<seed:think>T1 never</seed:think>A1 ab",
    "cohere": "<|START_THINKING|>T1 never<|END_THINKING|><|START_RESPONSE|>A1 ab<|END_RESPONSE|>",
}
"""What each family says that thinks ``T1 never`` and answers ``A1 ab``."""

CUT_OFF = {
    "qwen": "<think>\nT1 never",
    "r1": "T1 never",
    "gpt-oss": "<|channel|>analysis<|message|>T1 never",
    "magistral": "[THINK]T1 never",
    "seed": "<seed:think>T1 never",
    "cohere": "<|START_THINKING|>T1 never",
}
FAMILIES = tuple(TEMPLATES)


@cache
def thinking_counter(family):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(_core()))
    special, _, plain = _TOKENS[family].partition(" | ")
    named = special.split()
    added = [AddedToken(text, special=True, normalized=False) for text in named]
    tokenizer.add_tokens(added, special_tokens=True)
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in plain.split()])
    tokenizer.bos_token, tokenizer.eos_token = named[:2]
    tokenizer.chat_template = TEMPLATES[family]
    return ChatTokenizer(tokenizer)


class Saying:
    """A model with the counter of a family that says *texts*, some characters at a time."""

    name = "saying"
    context_window = 8192

    def __init__(self, counter, *texts):
        self.counter = counter
        self.requests = []
        self._texts = list(texts)

    def stream(self, request):
        self.requests.append(request)
        text = self._texts.pop(0) if self._texts else "ok"
        ids = tuple(self.counter._encoder.encode([text]))
        for start in range(0, len(text), 5):
            yield Chunk(text=text[start : start + 5])
        usage = Usage(
            prompt_tokens=len(request.token_ids),
            cached_tokens=0,
            completion_tokens=len(ids),
            ttft_s=0.0,
            total_s=0.0,
        )
        result = Generation(text=text, token_ids=ids, finish_reason=FinishReason.STOP, usage=usage)
        yield Chunk(text="", result=result)

    def discard_prefix(self, token_ids, *, num_kept=0, cache_salt=""):
        pass

    def forget(self, *, cache_salt):
        pass
