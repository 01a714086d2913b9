"""One ranking from two lists: reciprocal rank fusion with boosts from the question."""
