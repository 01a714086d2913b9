"""Random sessions assembled for a template of each kind."""

from collections import Counter
from itertools import pairwise

import fuzz_context
import pytest

from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.types import common_prefix
from tests.context.replay import Replay
from tests.inference.chat.test_message_segments import WholeTokenizer
from tests.inference.kinds import KINDS, kind_counter, kind_tokenizer

pytestmark = pytest.mark.slow

NUM_SESSIONS = 6


def seeds(kind):
    """Give each kind sessions of its own: thirty in all show more than the same six five times."""
    first = KINDS.index(kind) * NUM_SESSIONS
    return range(first, first + NUM_SESSIONS)


@pytest.fixture
def replays(monkeypatch):
    """The replays that the fuzz makes, each with the prompts that were assembled."""
    made = []

    class Recording(Replay):
        def __init__(self, *args):
            super().__init__(*args)
            self.prompts = []
            made.append(self)

        def assemble(self, hits=()):
            prompt = super().assemble(hits)
            self.prompts.append(prompt)
            return prompt

    monkeypatch.setattr(fuzz_context, "Replay", Recording)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_random_sessions_break_no_invariant(kind, replays):
    total = Counter()
    for seed in seeds(kind):
        total += fuzz_context.run_session(seed, kind_counter(kind))[1]

    assert {f: total[f] for f in fuzz_context.FAULTS} == dict.fromkeys(fuzz_context.FAULTS, 0)
    prompts = [prompt for replay in replays for prompt in replay.prompts]
    assert len(prompts) >= 30
    for prompt in prompts:
        assert min(prompt.tokens_by_tier.values()) >= 0
    for replay in replays:
        for prompt in replay.prompts:
            assert all(pin.text.strip() in prompt.text for pin in replay.pins)
        for before, after in pairwise(replay.prompts):
            shared = common_prefix(before.token_ids, after.token_ids)
            assert after.reuse.common_tokens <= shared


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_the_same_where_the_ends_of_messages_are_known(kind, replays):
    """Tiers are cut where each message ends, or where a shorter transcript does."""
    for seed in seeds(kind)[:3]:
        for tokenizer in (ChatTokenizer, WholeTokenizer):
            fuzz_context.run_session(seed, tokenizer(kind_tokenizer(kind)))

    for known, told in zip(replays[::2], replays[1::2], strict=True):
        assert known.prompts == told.prompts
