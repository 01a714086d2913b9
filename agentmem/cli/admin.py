"""Commands to administer a database: pins, moving, deleting."""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from agentmem.cli.opening import open_to_change, open_to_read, probe
from agentmem.cli.options import (
    Database,
    Key,
    KeyFile,
    Namespace,
    SessionKey,
    User,
    key_from,
)
from agentmem.cli.output import AsJson, json_value, out, to_plain
from agentmem.cli.tables import (
    health_table,
    pin_table,
    plain,
    replacement_table,
    stale_table,
    user_table,
)
from agentmem.errors import InvalidInputError
from agentmem.memory import Memory, Session
from agentmem.store import StaleSession, Transferred
from agentmem.types import BranchId

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}

MaybeUser = Annotated[
    str | None, typer.Option("--user", "-u", help="Owner of the sessions; default: all users.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]


def users(
    database: Database = "sqlite:///agentmem.db",
    namespace: Namespace = "default",
    *,
    as_json: AsJson = False,
) -> None:
    """List the users that have stored data."""
    with open_to_read(database, namespace) as memory:
        found = memory.users()
    out.show(user_table(found), found, as_json=as_json)


def health(
    database: Database = "sqlite:///agentmem.db",
    *,
    timeout: Annotated[float, typer.Option(help="Maximum wait in seconds.")] = 2.0,
    read_only: Annotated[bool, typer.Option("--read-only", help="Check reading only.")] = False,
    as_json: AsJson = False,
) -> None:
    """Health check for probes: print the state of the database; exit code 1 if unusable."""
    found = probe(database, timeout_s=timeout, read_only=read_only)
    out.show(health_table(found), {**to_plain(found), "is_ok": found.is_ok}, as_json=as_json)
    if not found.is_ok:
        raise typer.Exit(1)


def pins(  # noqa: PLR0913 - one option each
    session: SessionKey,
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    namespace: Namespace = "default",
    *,
    key: Annotated[str | None, typer.Option(help="All versions of this pin.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the pins of a session, or all versions of one of its pins."""
    with open_to_read(database, namespace) as memory:
        found = memory.find(session, user=user)
        pinned = found.pins() if key is None else found.pin_history(key)
    out.show(pin_table(pinned), pinned, as_json=as_json)


def replacements(
    session: SessionKey,
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    namespace: Namespace = "default",
    *,
    as_json: AsJson = False,
) -> None:
    """Show which messages of a session a later message replaced."""
    with open_to_read(database, namespace) as memory:
        found = memory.find(session, user=user).replacements()
    out.show(replacement_table(found), found, as_json=as_json)


def export(  # noqa: PLR0913 - one option each
    file: Annotated[Path, typer.Argument(help="Output file.")],
    database: Database = "sqlite:///agentmem.db",
    user: MaybeUser = None,
    namespace: Namespace = "default",
    *,
    session: Annotated[str | None, typer.Option(help="Only this session of the user.")] = None,
    key: Key = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Write a session, a user's sessions or a namespace, as JSON Lines with a checksum."""
    with open_to_read(database, namespace) as memory:
        hmac_key = key_from(key, key_file)
        moved = memory.export(file, user=user, key=session, hmac_key=hmac_key)
    out.say(plain(f"{_counted(moved)} → {file}"), _values(moved), as_json=as_json)


def import_(  # noqa: PLR0913 - one option each
    file: Annotated[Path, typer.Argument(help="A file from `agentmem export`.")],
    database: Database = "sqlite:///agentmem.db",
    user: MaybeUser = None,
    namespace: Namespace = "default",
    *,
    key: Key = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Import an export into the namespace, all or nothing; with --user, for that user."""
    hmac_key = key_from(key, key_file)
    with Memory.open(database, namespace=namespace) as memory:
        moved = memory.load(file, user=user, hmac_key=hmac_key)
    lines = [f"{_counted(moved)} ← {file}", *(f"not verified: {one}" for one in moved.unproven)]
    out.say(plain("\n".join(lines)), _values(moved), as_json=as_json)


def _counted(moved: Transferred) -> str:
    return f"{moved.sessions} sessions, {moved.messages} messages"


def _values(moved: Transferred) -> dict[str, object]:
    counts = {"sessions": moved.sessions, "messages": moved.messages}
    return counts | ({"unproven": moved.unproven} if moved.unproven else {})


def delete(  # noqa: PLR0913 - one option each
    session: SessionKey,
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    namespace: Namespace = "default",
    *,
    message: Annotated[int | None, typer.Option(help="Only the message at this position.")] = None,
    pin: Annotated[str | None, typer.Option(help="Only this pin, all versions.")] = None,
    subtask: Annotated[int | None, typer.Option(help="Only this subtask, by its id.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a session with all its messages, or a part of it. This cannot be undone."""
    if sum(part is not None for part in (message, pin, subtask)) > 1:
        raise InvalidInputError("--message, --pin and --subtask are mutually exclusive")
    with open_to_change(database, namespace) as memory:
        found = memory.find(session, user=user)
        what, delete_it = _what_to_delete(memory, found, message, pin, subtask)
        if not yes:
            typer.confirm(f"Delete {what}?", abort=True, err=as_json)
        delete_it()
    out.say(plain(f"{what} is deleted"), {"deleted": what}, as_json=as_json)


def _what_to_delete(
    memory: Memory, found: Session, message: int | None, pin: str | None, subtask: int | None
) -> tuple[str, Callable[[], None]]:
    """Return the target of the deletion in words, and the call that deletes it."""
    key = found.key
    if message is not None:
        return f"message {message} of session {key}", partial(found.delete_message, message)
    if pin is not None:
        return f"pin {pin} of session {key}", partial(found.delete_pin, pin)
    if subtask is not None:
        name = f"subtask {subtask} of session {key}"
        return name, partial(found.delete_subtask, BranchId(subtask))
    what = f"session {key} with {found.branch.head} messages"
    return what, partial(memory.delete, key, user=found.info.scope.user)


def purge(  # noqa: PLR0913 - one option each
    older_than: Annotated[str | None, typer.Option(help="Age such as 90d, 12h, 30m.")] = None,
    database: Database = "sqlite:///agentmem.db",
    namespace: Namespace = "default",
    *,
    log_older_than: Annotated[
        str | None, typer.Option(help="Age of prompt log entries; the newest are kept.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be deleted.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete inactive sessions of all users, or old prompt log entries; asks first."""
    if older_than is None and log_older_than is None:
        raise InvalidInputError(
            "pass an age: --older-than for sessions, --log-older-than for the prompt log"
        )
    age = None if older_than is None else _age(older_than, "--older-than")
    log_age = None if log_older_than is None else _age(log_older_than, "--log-older-than")
    how = "would be deleted" if dry_run else "are deleted"
    opened = open_to_read if dry_run else open_to_change
    gone: Sequence[StaleSession] | None = None
    num_accounts: int | None = None
    with opened(database, namespace) as memory:
        if age is not None:
            gone = memory.purge(age, dry_run=True)
            if gone and not dry_run:
                question = f"Permanently delete {len(gone)} sessions of {_users(gone)}?"
                _ = yes or typer.confirm(question, abort=True, err=as_json)
                gone = memory.purge(age)
        if log_age is not None:
            num_accounts = memory.purge_log(log_age, dry_run=dry_run)
    if as_json:
        json_value({"sessions": gone, "accounts": num_accounts, "is_dry_run": dry_run})
        return
    if gone is not None:
        out.print(stale_table(gone))
        out.print(f"{len(gone)} sessions {how}{f', of {_users(gone)}' if gone else ''}")
    if num_accounts is not None:
        out.print(f"{num_accounts} prompt log entries {how}")


def _users(found: Sequence[StaleSession]) -> str:
    return f"{len({session.scope.user for session in found})} users"


def _age(text: str, option: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,6})([dhms])", text.strip())
    if found is None:
        raise InvalidInputError(f"{option} takes a number and d, h, m or s, got {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
