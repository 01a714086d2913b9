"""Deletion and retention, and their events in the hash chain."""
