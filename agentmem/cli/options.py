"""Options that several commands take."""

from typing import Annotated

import typer

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
Lexical = Annotated[bool, typer.Option("--lexical", help="By words alone: no embedder is loaded.")]
Key = Annotated[
    str | None,
    typer.Option(envvar="AGENTMEM_KEY", show_envvar=True, help="Makes the head an HMAC."),
]
