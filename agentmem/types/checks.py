"""Whether an argument is a number. ``True`` and ``False``, which Python counts as such, are not."""


def is_int(value: object) -> bool:
    """Whether *value* is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether *value* is an integer or a float."""
    return isinstance(value, int | float) and not isinstance(value, bool)
