"""Small random models and a small tokenizer, for tests that need no real answers."""

from unittest.mock import patch

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from agentmem.config import InferenceConfig, Sampling
from agentmem.inference import LocalModel
from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.inference.runner.memory_plan import MemoryPlan
from agentmem.machine.quiet import quiet_libraries
from agentmem.protocols import GenerationRequest
from agentmem.types import Message, Role, TextPart

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
VOCAB_SIZE = 260
EOS = 257

_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": EOS,
}

SPECIAL_CASES = {
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 512},
    "gptj": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 512, "rotary_dim": 8},
    "bloom": {"n_layer": 3, "n_head": 4},
    "mpt": {"d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 512},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "falcon": {"multi_query": True},
    "mistral": {"sliding_window": 16},
    "gemma2": {"sliding_window": 16},
    "gemma3_text": {
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16},
    "deepseek_v3": {
        "q_lora_rank": 16,
        "kv_lora_rank": 8,
        "num_key_value_heads": 4,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 16,
        "n_shared_experts": 1,
    },
}
_UNKNOWN = {"falcon": {"head_dim", "num_key_value_heads"}}
"""Sizes that a config works out for itself, and does not take."""


def tiny_tokenizer():
    """One token per byte, and ChatML."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    specials = ["<|im_start|>", "<|im_end|>", "<|pad|>"]
    core.add_special_tokens([AddedToken(text, special=True) for text in specials])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, chat_template=CHATML)
    tokenizer.eos_token, tokenizer.pad_token = specials[1:]
    return tokenizer


def tiny_module(kind="llama", **settings):
    """A random model of a kind, the same each time."""
    torch.manual_seed(0)
    with quiet_libraries():
        sizes = _SIZES | SPECIAL_CASES.get(kind, {}) | settings
        known = {k: v for k, v in sizes.items() if k not in _UNKNOWN.get(kind, ())}
        config = AutoConfig.for_model(kind, **known)
        module = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        # The library's initial weights are so small that every model says the same.
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
    return module


def tiny_model(kind="llama", *, module=None, **config):
    config = {"dtype": "float32", "block_size": 4, "kv_bytes": 1 << 20} | config
    return LocalModel(
        module or tiny_module(kind),
        tiny_tokenizer(),
        name=f"tiny-{kind}",
        config=InferenceConfig(**config),
        fingerprint="tiny",
    )


def model_with_blocks(num_blocks, *, run_slots=1 << 16, module=None, **config):
    """A llama with a pool of that many blocks of 4 positions, and room for all that may run."""
    plan = MemoryPlan(num_blocks=num_blocks, run_slots=run_slots)
    with patch("agentmem.inference.engine.engine.plan_memory", return_value=plan):
        return tiny_model(module=module or tiny_module(), **config)


def plain_ids(module, token_ids, max_tokens):
    """What the library's own greedy `generate` gives."""
    ids = torch.tensor([list(token_ids)])
    with quiet_libraries():
        out = module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=EOS,
            pad_token_id=0,
        )
    return [int(i) for i in out[0, len(token_ids) :]]


def greedy_ids(model, token_ids, max_tokens, **request):
    """All tokens that our engine chooses, the stopping one included."""
    [found] = greedy_batch(model, [token_ids], max_tokens, **request)
    return found


def greedy_batch(model, prompts, max_tokens, **request):
    """For requests that run side by side, what `greedy_ids` gives for one."""
    outputs = [model._output(ask(prompt, max_tokens, **request)) for prompt in prompts]
    chosen = [spied(output) for output in outputs]
    engine = model._engine
    for output in outputs:
        engine.add(output.sequence)
    while engine.step():
        engine.check()
    return [(ids, result_of(output)) for ids, output in zip(chosen, outputs, strict=True)]


def result_of(output):
    """The result of a request that has ended, or its error."""
    while True:
        chunk = output.next_chunk()
        if chunk.result is not None:
            return chunk.result


def spied(output):
    """Give the list that the chosen tokens will stand in."""
    chosen = []
    original = output._sampler.choose

    def choose(logits):
        chosen.append(original(logits))
        return chosen[-1]

    output._sampler.choose = choose
    return chosen


def ask(token_ids, max_tokens, *, salt="", **sampling):
    return GenerationRequest(
        token_ids=tuple(token_ids),
        sampling=Sampling(max_tokens=max_tokens, **sampling),
        cache_salt=salt,
    )


def random_ids(count, *, seed=0):
    """Token ids of plain bytes."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, 256, (count,), generator=generator).tolist())


def say(role, text="", **more):
    parts = (TextPart(text=text),) if text else ()
    return Message(role=Role(role), parts=parts, **more)


def with_template(template):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return ChatTokenizer(tokenizer)


def controls(rendered, counter):
    return [i for i in rendered.token_ids if i in counter.control_ids]
