"""KV blocks: the pool, the prefix cache, eviction, and the sequences that reference them."""
