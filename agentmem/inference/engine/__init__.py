"""Requests: admission, scheduling, steps, and the handles that callers wait on."""
