"""Rebuilds an index with a progress bar."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from agentmem.memory import Memory
from agentmem.protocols import IndexStatus


def rebuild(console: Console, memory: Memory, user: str, session: str | None) -> IndexStatus:
    """Rebuild the index of a session, or of all sessions of *user*; return its status."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console) as progress:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        return memory.rebuild_index(user=user, key=session, on_progress=show)
