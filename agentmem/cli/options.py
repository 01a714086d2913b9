"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

from agentmem.errors import InvalidInputError

Database = Annotated[
    str, typer.Option("--database", "-d", envvar="AGENTMEM_DATABASE", help="Database URL.")
]
User = Annotated[str, typer.Option("--user", "-u", help="Whose sessions.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Which application's.")]
SessionKey = Annotated[str, typer.Argument(metavar="SESSION", help="The session's key.")]
ModelName = Annotated[
    str, typer.Option("--model", "-m", help="A hub name, a folder, or a .gguf file.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
EmbedderName = Annotated[
    str | None, typer.Option("--embedder", "-e", help="A hub name or a folder; MiniLM by default.")
]
Lexical = Annotated[
    bool, typer.Option("--lexical", help="Lexical search only: no embedder is loaded.")
]
Key = Annotated[
    str | None,
    typer.Option(envvar="AGENTMEM_KEY", show_envvar=True, help="Key of the HMAC."),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(help="A file with the key, in place of --key, which other users can see in ps."),
]


def key_from(key: str | None, file: Path | None) -> str | None:
    """
    Return the key of an HMAC, from *file* if given, without the line end.

    Raises:
        InvalidInputError: the file cannot be read, or is empty.
    """
    if file is None:
        return key
    try:
        found = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"cannot read the key file {str(file)!r}: {error}") from error
    if not found:
        raise InvalidInputError(f"the key file {str(file)!r} is empty")
    return found
