"""Commands for search, and the index that it uses."""

from typing import Annotated

import typer

from agentmem.cli.opening import open_to_change, open_to_read, open_to_search
from agentmem.cli.options import Database, EmbedderName, Lexical, Namespace, SessionKey, User
from agentmem.cli.output import AsJson, beside, out
from agentmem.cli.tables import hit_table, plain, status_table
from agentmem.protocols import Retriever

index = typer.Typer(help="The search index.", no_args_is_help=True)

_AnySession = Annotated[
    str | None, typer.Argument(metavar="[SESSION]", help="One session; default: all of the user's.")
]


def search(  # noqa: PLR0913 - Typer makes an option of each parameter
    session: SessionKey,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Search query.")],
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    namespace: Namespace = "default",
    *,
    limit: Annotated[int, typer.Option(help="Maximum number of messages.")] = 10,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Search all sessions of the user.")
    ] = False,
    wait: Annotated[float, typer.Option(help="Maximum wait for embeddings, in seconds.")] = 30.0,
    full: Annotated[bool, typer.Option("--full", help="Untruncated texts.")] = False,
    embedder: EmbedderName = None,
    lexical: Lexical = False,
    as_json: AsJson = False,
) -> None:
    """Search the messages of a session, by words (BM25) and by meaning (embeddings)."""
    # The session first: a typo in a name is reported before a model is loaded.
    with open_to_read(database, namespace) as memory:
        memory.find(session, user=user)
    retriever = _load(embedder, lexical=lexical, as_json=as_json)
    with open_to_search(database, namespace, retriever) as memory:
        is_ready = memory.wait_for_index(max(0.0, wait))
        hits = memory.find(session, user=user).search(query, limit=limit, everywhere=everywhere)
        out.show(hit_table(hits, full=full), hits, as_json=as_json)
        status = memory.index_status(user=user, key=None if everywhere else session)
    if as_json:
        return
    if not is_ready and status.num_pending:
        out.print(f"{status.num_pending} messages are not embedded yet: searched by words only")
    if status.last_error is not None:
        out.print(plain(f"last error of the index: {status.last_error}"))


@index.command("status")
def index_status(  # noqa: PLR0913 - Typer makes an option of each parameter
    session: _AnySession = None,
    *,
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    namespace: Namespace = "default",
    embedder: EmbedderName = None,
    lexical: Lexical = False,
    as_json: AsJson = False,
) -> None:
    """Show the index status of a session, or of all sessions of a user."""
    # The database first: no model is loaded for a typo in a URL.
    open_to_read(database, namespace).close()
    retriever = _load(embedder, lexical=lexical, as_json=as_json)
    with open_to_search(database, namespace, retriever) as memory:
        status = memory.index_status(user=user, key=session)
    out.show(status_table(status), status, as_json=as_json)


@index.command("rebuild")
def index_rebuild(  # noqa: PLR0913 - Typer makes an option of each parameter
    session: _AnySession = None,
    *,
    database: Database = "sqlite:///agentmem.db",
    user: User = "default",
    namespace: Namespace = "default",
    embedder: EmbedderName = None,
    lexical: Lexical = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild an index from the messages, and embed the messages without a vector."""
    # Its progress bar would slow the start of every other command: see test_import_is_light.
    from agentmem.cli.rebuilding import rebuild  # noqa: PLC0415 - see above

    open_to_change(database, namespace).close()
    retriever = _load(embedder, lexical=lexical, as_json=as_json)
    with open_to_search(database, namespace, retriever) as memory:
        status = rebuild(beside(as_json=as_json), memory, user, session)
    out.show(status_table(status), status, as_json=as_json)


def _load(embedder: str | None, *, lexical: bool, as_json: bool) -> Retriever:
    # It needs the extra `retrieval`, which other commands do without.
    from agentmem.retrieval import HybridRetriever  # noqa: PLC0415 - see above

    if lexical:
        return HybridRetriever()
    with beside(as_json=as_json).status("loading the embedder"):
        return HybridRetriever.load(embedder)
