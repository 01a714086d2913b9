"""Embeddings: computing them in the background, storing them, and comparing them."""
