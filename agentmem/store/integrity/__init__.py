"""Integrity checks of stored data, by itself and against an external head."""
