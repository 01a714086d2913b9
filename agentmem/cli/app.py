"""The commands. Invalid input is one line on standard error and exit code 2."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console

from agentmem.cli.admin import (
    Yes,
    delete,
    export,
    health,
    import_,
    pins,
    purge,
    replacements,
    users,
)
from agentmem.cli.demo import run_demo
from agentmem.cli.demo_model import demo_model
from agentmem.cli.opening import open_to_read
from agentmem.cli.options import (
    Database,
    Device,
    Dtype,
    Key,
    KeyFile,
    ModelName,
    Namespace,
    SessionKey,
    User,
    key_from,
)
from agentmem.cli.output import AsJson, beside, json_value, out, take_any_encoding
from agentmem.cli.search import index, search
from agentmem.cli.tables import (
    audit_table,
    message_table,
    plain,
    session_table,
    truncation_table,
)
from agentmem.config import Budget, InferenceConfig, Sampling
from agentmem.errors import AgentMemError, DatabaseUrlError, InvalidInputError
from agentmem.memory import Memory
from agentmem.store import current, downgrade, exists, revisions, upgrade
from agentmem.types import BranchId

app = typer.Typer(
    name="agentmem",
    help="Conversation memory for agents, with an exact record of each prompt.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
db = typer.Typer(help="Database schema and migrations.", no_args_is_help=True)
app.add_typer(db, name="db")
app.command("users")(users)
app.command("health")(health)
app.command("pins")(pins)
app.command("replacements")(replacements)
app.command("export")(export)
app.command("import")(import_)
app.command("delete")(delete)
app.command("purge")(purge)
app.command("search")(search)
app.add_typer(index, name="index")

# Typer uses click or, in later versions, a vendored copy; this is the usage error of either.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_DEFAULT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


def _show_version(*, is_asked: bool) -> None:
    if is_asked:
        out.print(version("agentmem-window"))
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda value: _show_version(is_asked=value),
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    pass


@app.command()
def demo(  # noqa: PLR0913 - one option each
    database: Database = "sqlite:///agentmem-demo.db",
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="A hub name, a folder, a .gguf file, a server's, or scripted."
        ),
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="URL of an OpenAI-compatible server, up to /v1.")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    *,
    as_json: AsJson = False,
) -> None:
    """Run a sample conversation, and show its pins, truncations, recall and prefix reuse."""
    config = InferenceConfig(device=device, dtype=dtype)
    console = beside(as_json=as_json)
    # The database first: a typo in a URL is reported before a model is loaded.
    Memory.open(database).close()
    with demo_model(console, model, server, config) as (found, remark):
        replies = run_demo(console, database, found, remark)
    if as_json:
        json_value(replies)


@app.command()
def chat(  # noqa: PLR0913 - one option each
    session: Annotated[
        str, typer.Argument(metavar="[SESSION]", help="New or existing session key.")
    ] = "chat",
    *,
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    model: ModelName = _DEFAULT_MODEL,
    pin: Annotated[list[str] | None, typer.Option(help="KEY=TEXT, shown in every prompt.")] = None,
    context: Annotated[int, typer.Option(help="Token budget of prompt and reply.")] = 2048,
    max_tokens: Annotated[int, typer.Option(help="Maximum tokens of a reply.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Sampling seed.")] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    as_json: AsJson = False,
) -> None:
    """Chat with the model; the session is stored and can be resumed."""
    budget = Budget(context=context, reply=max_tokens)
    sampling = Sampling(temperature=temperature, seed=seed)
    pins = dict(_key_and_text(text) for text in pin or [])
    config = InferenceConfig(device=device, dtype=dtype)
    from agentmem.cli.chat import run_chat  # noqa: PLC0415 - loads torch, which takes seconds
    from agentmem.cli.loading import load_model  # noqa: PLC0415 - the same

    # The database first: a typo in a URL is reported before a model is loaded.
    with Memory.open(database):
        loaded = load_model(beside(as_json=as_json), model, config)
    try:
        with Memory.open(database, model=loaded, budget=budget) as memory:
            found = memory.session(session, user=user)
            run_chat(beside(as_json=as_json), found, pins, sampling, as_json=as_json)
    finally:
        loaded.close()


@app.command()
def sessions(
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    namespace: Namespace = "default",
    *,
    as_json: AsJson = False,
) -> None:
    """List the sessions of a user."""
    with open_to_read(database, namespace) as memory:
        found = memory.sessions(user=user)
    out.show(session_table(found), found, as_json=as_json)


@app.command()
def show(  # noqa: PLR0913 - one option each
    session: SessionKey,
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    namespace: Namespace = "default",
    *,
    full: Annotated[bool, typer.Option("--full", help="Untruncated texts.")] = False,
    branch: Annotated[
        int | None, typer.Option(help="Another line or a subtask, by its branch id.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the pins and messages of a session, or of one of its branches."""
    with open_to_read(database, namespace) as memory:
        found = memory.find(session, user=user)
        shown = found if branch is None else found.history(BranchId(branch))
        pinned, messages = shown.pins(), shown.messages()
    if not as_json:
        for one in pinned:
            out.print(plain(f"pin {one.key} (version {one.version}): {one.text}"))
    value = {"pins": pinned, "messages": messages}
    out.show(message_table(messages, full=full), value, as_json=as_json)


@app.command()
def truncations(
    session: SessionKey,
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    namespace: Namespace = "default",
    *,
    as_json: AsJson = False,
) -> None:
    """Show the truncation records of a session and its subtasks: what, when, why, destination."""
    with open_to_read(database, namespace) as memory:
        found = memory.find(session, user=user)
        logs = [(one.name, found.history(one.id).truncations()) for one in found.branches()]
    value = [{"branch": name, "truncations": records} for name, records in logs]
    out.show(truncation_table(logs), value, as_json=as_json)


@app.command()
def check(  # noqa: PLR0913 - one option each
    session: SessionKey,
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    namespace: Namespace = "default",
    *,
    integrity: Annotated[bool, typer.Option("--integrity", help="Verify the hash chain.")] = False,
    head: Annotated[str | None, typer.Option(help="A head kept outside the database.")] = None,
    key: Key = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Check a session against the log of its prompts; exit code 1 if they differ."""
    with open_to_read(database, namespace) as memory:
        found = memory.find(session, user=user)
        # The variable may be set for other calls.
        is_keyed = head is not None and head.strip().startswith("hmac")
        known = key_from(key, key_file) if is_keyed else None
        audits = found.audit(integrity=integrity, head=head, key=known)
    out.show(audit_table(audits), audits, as_json=as_json)
    if any(audit.problems or audit.discrepancies for audit in audits):
        raise typer.Exit(1)


@app.command("head")
def head_(  # noqa: PLR0913 - one option each
    session: SessionKey,
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    namespace: Namespace = "default",
    *,
    key: Key = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the head of a session's hash chain, to keep outside the database for check --head."""
    with open_to_read(database, namespace) as memory:
        found = memory.find(session, user=user).head(key=key_from(key, key_file))
    out.say(plain(found), {"session": session, "head": found}, as_json=as_json)


@db.command("upgrade")
def db_upgrade(database: Database = "sqlite:///agentmem.db", *, as_json: AsJson = False) -> None:
    """Migrate to the newest schema; create the tables in an empty database."""
    before = current(database)
    after = upgrade(database)
    _say_moved(before, after, as_json=as_json)


@db.command("current")
def db_current(database: Database = "sqlite:///agentmem.db", *, as_json: AsJson = False) -> None:
    """Show the schema revision."""
    found = _there(database)
    value = {"revision": found, "newest": revisions()[-1]}
    out.say(plain(found or "empty"), value, as_json=as_json)


@db.command("downgrade")
def db_downgrade(
    revision: Annotated[
        str, typer.Argument(metavar="REVISION", help="A revision, or base: no tables.")
    ],
    database: Database = "sqlite:///agentmem.db",
    *,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Migrate back to an older schema revision, for an older agentmem."""
    known = ("base", *revisions())
    if revision not in known:
        raise InvalidInputError(f"there is no revision {revision!r}: it is one of {known}")
    before = _there(database)
    if before is None or before == revision:
        _say_moved(before, before, as_json=as_json)
        return
    if not yes:
        typer.confirm(
            f"Downgrade from {before} to {revision}? Data of newer tables and columns is deleted.",
            abort=True,
            err=as_json,
        )
    _say_moved(before, downgrade(database, revision), as_json=as_json)


def _say_moved(before: str | None, after: str | None, *, as_json: bool) -> None:
    """Print the revisions before and after a migration."""
    here = after or "empty"
    line = f"{before or 'empty'} → {here}" if before != after else f"already at {here}"
    out.say(plain(line), {"before": before, "after": after}, as_json=as_json)


def _there(database: str) -> str | None:
    """Return the revision of an existing database; None if it has no tables."""
    found = current(database)
    if found is None and not exists(database):
        raise DatabaseUrlError(f"there is no database {database}: check the path")
    return found


def _key_and_text(pin: str) -> tuple[str, str]:
    key, separator, text = pin.partition("=")
    if not separator or not key or not text.strip():
        raise InvalidInputError(f"--pin takes KEY=TEXT, got {pin!r}")
    return key, text


def main() -> None:
    """Run the command line of this process."""
    take_any_encoding()
    errors = Console(stderr=True, soft_wrap=True)
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except AgentMemError as error:
        errors.print(plain(f"error: {error}"))
        sys.exit(2)
    except _UsageError as error:
        # Without a message it only reports that the help was shown.
        if str(error):
            errors.print(plain(f"error: {error}"))
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        errors.print("aborted; stored messages are kept")
        sys.exit(130)
