"""Embeddings: computed in the background, stored, and searched."""
