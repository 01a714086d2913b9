"""Reciprocal rank fusion of the lexical and the dense ranking, with query boosts."""
