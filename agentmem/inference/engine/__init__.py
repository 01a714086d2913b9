"""Requests: admission, scheduling, engine steps, and the handles that callers wait on."""
