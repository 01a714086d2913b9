"""Count how often the window slides behind pins of any size: at most once in some turns."""

import random

from agentmem.config import Budget
from agentmem.context import Policy
from agentmem.protocols import TokenCounter
from agentmem.types import Message, PrefixBreak, Role, TextPart
from tests.builders import pin
from tests.context.replay import Replay

TURNS = 60
_SHARE = 0.6
"""Of the tokens between low water and full, how many a window must at least take in."""


def slides_too_often(rng: random.Random, counter: TokenCounter) -> bool:
    """Play a session of even turns behind a large pin; whether it slides more than it may."""
    prompt = rng.choice((300, 500, 950, 2000))
    low = rng.choice((0.3, 0.5, 0.7))
    share = rng.choice((0, 0.15, 0.4))
    budget = Budget(context=prompt + 8, reply=8, low_water=low, summary=share, retrieved=0)
    words = rng.randrange(3, 20)
    # Beside the pins there is room for two turns at least.
    pinned = rng.randrange(0, min(int(prompt * 0.95), prompt - 4 * (words + 2)))
    replay = Replay(budget, [pin("p", _words("rule", pinned))], Policy(), counter)
    slides = 0
    for turn in range(TURNS):
        for role in (Role.USER, Role.ASSISTANT):
            said = TextPart(text=_words(f"{role}{turn}", words))
            replay.say(Message(role=role, parts=(said,)))
        slides += replay.assemble().reuse.broken_by is PrefixBreak.COMPACTION
    left = prompt - pinned - 4
    # Between two slides fit the turns of what summaries leave above low water.
    gap = _SHARE * (1 - low) * (1 - share) * left / (2 * (words + 2))
    return gap >= 1 and slides > TURNS / gap + 2


def _words(stem: str, number: int) -> str:
    return " ".join(f"{stem}{i}" for i in range(number))
