"""Output: tables and JSON, not truncated where piped, in any encoding."""

import codecs
import io
import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH: Final = 100_000
_SPELLED: Final = {"→": "->", "←": "<-", "…": "..."}

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with every field.")]


class _Output(Console):
    """A console that truncates nothing where no terminal limits the width."""

    def __init__(self) -> None:
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        super().__init__(soft_wrap=False, width=None if is_terminal else _PIPED_WIDTH)

    def show(self, table: Table, value: object, *, as_json: bool) -> None:
        """Print *value* as JSON, else *table*."""
        if as_json:
            json_value(value)
        else:
            self.print(table)

    def say(self, line: Text, value: object, *, as_json: bool) -> None:
        """Print *value* as JSON, else *line*."""
        if as_json:
            json_value(value)
        else:
            self.print(line, soft_wrap=True)


out = _Output()


def beside(*, as_json: bool) -> Console:
    """Return the console of progress and remarks: standard error where the output is JSON."""
    return Console(stderr=True) if as_json else out


def json_value(value: object) -> None:
    """Print *value* as indented JSON."""
    typer.echo(json.dumps(to_plain(value), indent=2))


def json_line(value: object) -> None:
    """Print *value* as one line of JSON Lines, and flush."""
    typer.echo(json.dumps(to_plain(value)))


def to_plain(value: object) -> Any:
    """Convert *value* to JSON types: dataclasses to objects, datetimes to ISO 8601."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Enum):
        return to_plain(value.value)
    if isinstance(value, Mapping):
        return {str(to_plain(key)): to_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(one) for one in value]
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def take_any_encoding() -> None:
    """Replace characters that the encoding of the terminal or pipe lacks by similar ones."""
    codecs.register_error("agentmem", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="agentmem")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_SPELLED.get(one, "?") for one in missing), error.end
