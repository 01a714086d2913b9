"""Frozen settings, validated on construction."""

from dataclasses import dataclass, replace

from agentmem.errors import ConfigError
from agentmem.types.checks import is_int, is_number
from agentmem.types.fields import check_fields
from agentmem.types.short_repr import ShortRepr

MAX_LOGPROBS = 50
"""The maximum number of alternatives to a sampled token."""


_MAX_TIMEOUT_S = 2_000_000
"""PostgreSQL counts milliseconds in 32 bits."""


def _require(*, ok: bool, message: str) -> None:
    if not ok:
        raise ConfigError(message)


def _require_ints(settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        _require(
            ok=is_int(value),
            message=f"{name} must be an integer, got {value!r:.80}",
        )


def _require_numbers(settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        _require(
            ok=is_number(value),
            message=f"{name} must be a number, got {value!r:.80}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(ShortRepr):
    """
    Tokens of one prompt.

    The recent window grows until prompt and reply fill *context*; then it slides, whole turns at
    a time, until it takes *low_water* of its room. So the prompt's prefix, and with it the KV
    cache, is invalidated once per slide and not once per turn.

    Pins and the current turn come first. Unused shares go to the recent window. The shares of
    summaries and recalled messages are relative to the prompt without its pins.

    Args:
        context: tokens of prompt and reply together.
        reply: tokens reserved for the reply.
        low_water: the share of its room that the window keeps when it slides.
        summary: maximum tokens of all summaries; a float is a share of the prompt. One summary
            takes a third of it, and at least 16 tokens: below 48 there are none.
        retrieved: maximum tokens of recalled messages; a float is a share of the prompt.
        clip: whether the longest text of a current turn that does not fit is clipped; if not, it
            is an error.
    """

    context: int = 4096
    reply: int = 512
    low_water: float = 0.5
    summary: int | float = 0.15
    retrieved: int | float = 0.25
    clip: bool = True

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        _require_ints(self, "context", "reply")
        _require_numbers(self, "low_water", "summary", "retrieved")
        _require(
            ok=self.reply >= 1 and self.context > self.reply,
            message=f"a budget needs 1 <= reply < context, got reply {self.reply} and context "
            f"{self.context}",
        )
        _require(
            ok=0 <= self.low_water <= 1,
            message=f"low_water must be between 0 and 1, got {self.low_water}",
        )
        for name in ("summary", "retrieved"):
            share = getattr(self, name)
            _require(
                ok=share >= 0 and (isinstance(share, int) or share <= 1),
                message=f"{name} must be tokens or a share from 0.0 to 1.0, got {share}",
            )
        _require(
            ok=self.summary_tokens + self.retrieved_tokens <= self.prompt,
            message=f"summary ({self.summary_tokens}) and retrieved ({self.retrieved_tokens}) take "
            f"more than the {self.prompt} tokens of the prompt",
        )

    @property
    def prompt(self) -> int:
        """Maximum tokens of the prompt."""
        return self.context - self.reply

    @property
    def summary_tokens(self) -> int:
        """Maximum tokens of all summaries."""
        return self._tokens(self.summary)

    @property
    def retrieved_tokens(self) -> int:
        """Maximum tokens of recalled messages."""
        return self._tokens(self.retrieved)

    def behind(self, num_pinned: int) -> "Budget":
        """
        Return this budget with its shares as tokens, where pins take *num_pinned* of the prompt.

        A float is a share of the rest after the pins. Token counts are unchanged while both
        together take at most half of that rest, or their share of a prompt without pins if
        greater; else they shrink with it. So there is a window after any pins.
        """
        left = self.left_by(num_pinned)
        both = self.summary_tokens + self.retrieved_tokens
        most = left * max(both / self.prompt, 0.5)
        factor = min(1.0, most / both) if both else 1.0

        def tokens(share: float) -> int:
            return int(share * (factor if isinstance(share, int) else left))

        return replace(self, summary=tokens(self.summary), retrieved=tokens(self.retrieved))

    def left_by(self, num_pinned: int) -> int:
        """Return the tokens that pins of *num_pinned* tokens leave of the prompt."""
        return max(0, self.prompt - num_pinned)

    def _tokens(self, share: float) -> int:
        return share if isinstance(share, int) else int(share * self.prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseConfig(ShortRepr):
    """
    Connections to the database, and timeouts.

    A SQLite file has a pool of the same sizes; in-memory SQLite has one connection.

    Args:
        pool_size: connections that are kept open.
        max_overflow: additional connections under concurrent calls.
        pool_timeout_s: seconds to wait for a connection of the pool.
        lock_timeout_s: seconds that a write waits for its lock, retries included.
        statement_timeout_s: maximum seconds of a statement; PostgreSQL only. None for no limit,
            also where the server has a default.
        create: whether a missing database, or missing tables, are created.
    """

    pool_size: int = 5
    max_overflow: int = 10
    pool_timeout_s: float = 30.0
    lock_timeout_s: float = 20.0
    statement_timeout_s: float | None = None
    create: bool = True

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        _require_ints(self, "pool_size", "max_overflow")
        limits = {"pool_timeout_s": 0.0, "lock_timeout_s": 0.001}
        if self.statement_timeout_s is not None:
            limits["statement_timeout_s"] = 0.001
        _require_numbers(self, *limits)
        _require(
            ok=self.pool_size >= 1 and self.max_overflow >= 0,
            message=f"a pool needs pool_size >= 1 and max_overflow >= 0, got {self.pool_size} and "
            f"{self.max_overflow}",
        )
        for name, least in limits.items():
            value = getattr(self, name)
            _require(
                ok=least <= value <= _MAX_TIMEOUT_S,
                message=f"{name} must be between {least} and {_MAX_TIMEOUT_S} seconds, got {value}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling(ShortRepr):
    """
    How the next token is sampled.

    Args:
        max_tokens: maximum tokens to generate; None means the reply reserve of the budget.
        temperature: 0 is greedy.
        top_p: nucleus sampling: the smallest set of tokens with this total probability; 1 is off.
        top_k: only the *top_k* most probable tokens; None is off.
        min_p: only tokens with at least this share of the highest probability; 0 is off.
        repetition_penalty: divides the logits of tokens in the prompt or the answer; 1 is off.
        seed: of the random generator of this request; None is a random seed.
        stop: strings that end the text; they are not part of it.
        stop_ids: stop tokens besides the model's own; they are not part of the text.
        logprobs: the number of top alternatives per token; None returns no logprobs, 0 only those
            of the sampled token.
        ignore_eos: continue after an end-of-sequence token, up to *max_tokens*; for benchmarks.
    """

    max_tokens: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        given = ("max_tokens", "top_k", "seed", "logprobs")
        _require_ints(self, *(name for name in given if getattr(self, name) is not None))
        _require_numbers(self, "temperature", "top_p", "min_p", "repetition_penalty")
        _require(ok=0 <= self.min_p <= 1, message=f"min_p must be in [0, 1], got {self.min_p}")
        _require(
            ok=0 < self.repetition_penalty < float("inf"),
            message=f"repetition_penalty must be greater than 0, got {self.repetition_penalty}",
        )
        _require(
            ok=self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS,
            message=f"logprobs must be from 0 to {MAX_LOGPROBS}, got {self.logprobs}",
        )
        _require(
            ok=self.seed is None or 0 <= self.seed < 1 << 63,
            message=f"seed must be from 0 to 2**63 - 1, got {self.seed}",
        )
        _require(
            ok=self.max_tokens is None or self.max_tokens >= 1,
            message=f"max_tokens must be at least 1, got {self.max_tokens}",
        )
        _require(
            ok=0 <= self.temperature < float("inf"),
            message=f"temperature must be finite and at least 0, got {self.temperature}",
        )
        _require(ok=0 < self.top_p <= 1, message=f"top_p must be in (0, 1], got {self.top_p}")
        _require(
            ok=self.top_k is None or self.top_k >= 1,
            message=f"top_k must be at least 1, got {self.top_k}",
        )
        _require(
            ok=isinstance(self.stop, tuple)
            and all(isinstance(text, str) and text for text in self.stop),
            message=f"stop must be a tuple of non-empty strings, got {self.stop!r}",
        )
        _require(
            ok=isinstance(self.stop_ids, tuple)
            and all(isinstance(one, int) and one >= 0 for one in self.stop_ids),
            message=f"stop_ids must be a tuple of token ids, got {self.stop_ids!r}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceConfig(ShortRepr):
    """
    How a local model runs.

    Args:
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``; auto is CUDA where available.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; auto is bfloat16 where the
            device computes it fast and float32 elsewhere.
        weights: ``auto`` repacks them for the CPU kernels, which changes answers by rounding only;
            ``plain`` leaves them unchanged. ``int8`` and ``int4`` are quantized weights for up to
            4 rows at a time, which changes answers; prompts and larger batches use the full
            weights, which stay in memory too. CPU only.
        block_size: token positions in one KV block.
        kv_bytes: maximum memory for keys and values: the block pool and the buffers of running
            requests (up to half of it), or the caches of a model without prefix reuse; allocated
            on demand. A float is a share of the device's free memory when the model is loaded.
        prefill_chunk: tokens of one prompt in one forward pass.
        max_num_batched_tokens: prompt tokens in one step, over all requests.
        max_num_seqs: maximum concurrent requests.
        max_waiting: maximum waiting requests; further ones are rejected.
    """

    device: str = "auto"
    dtype: str = "auto"
    weights: str = "auto"
    block_size: int = 16
    kv_bytes: int | float = 1 << 30
    prefill_chunk: int = 1024
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 16
    max_waiting: int = 1024

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        _require(
            ok=isinstance(self.device, str),
            message=f"device must be a str such as auto, cpu or cuda, got {self.device!r:.80}",
        )
        _require(
            ok=self.dtype in {"auto", "float32", "bfloat16", "float16"},
            message=f"dtype must be auto, float32, bfloat16 or float16, got {self.dtype!r}",
        )
        _require(
            ok=self.weights in {"auto", "plain", "int8", "int4"},
            message=f"weights must be auto, plain, int8 or int4, got {self.weights!r}",
        )
        counts = ["block_size", "prefill_chunk", "max_num_batched_tokens"]
        counts += ["max_num_seqs", "max_waiting"]
        _require_ints(self, *counts)
        _require_numbers(self, "kv_bytes")
        if isinstance(self.kv_bytes, int):
            counts.append("kv_bytes")
        _require(
            ok=isinstance(self.kv_bytes, int) or 0 < self.kv_bytes <= 1,
            message=f"kv_bytes must be bytes or a share from 0.0 to 1.0, got {self.kv_bytes}",
        )
        for name in counts:
            value = getattr(self, name)
            _require(ok=value >= 1, message=f"{name} must be at least 1, got {value}")
