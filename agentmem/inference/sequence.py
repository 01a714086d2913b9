"""One running request: its token ids, its blocks and the state of its computation."""

from dataclasses import dataclass, field

from agentmem.inference.block_pool import BlockId
from agentmem.inference.causal_model import OwnCache
from agentmem.inference.paged_cache import PagedCache


@dataclass(slots=True, eq=False)
class Sequence:
    """
    What one request holds while it runs.

    *reserved* blocks are promised to it and not yet in its *table*.
    """

    token_ids: list[int]
    num_prompt: int
    salt: str
    cache: PagedCache | OwnCache
    table: list[BlockId] = field(default_factory=list)
    reserved: int = 0
    num_cached: int = 0
    """Prompt tokens found in the prefix cache."""

    num_computed: int = 0
    """Tokens whose keys and values are in *cache*."""

    num_published: int = 0
    """Blocks, from the first on, that the prefix cache knows."""

    ended: bool = False
