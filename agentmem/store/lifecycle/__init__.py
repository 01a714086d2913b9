"""Deletion and retention, and what they leave in a hash chain."""
