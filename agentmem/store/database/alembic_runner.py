"""Runs the migrations on a connection. Loads Alembic, so `migrate` imports it on demand."""

from pathlib import Path
from typing import Literal

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection

__all__ = ["CommandError", "config", "move"]


def move(connection: Connection, revision: str, direction: Literal["upgrade", "downgrade"]) -> None:
    """
    Run the migrations from the current revision to *revision*. The caller commits.

    Raises:
        CommandError: the revision does not exist in that direction.
    """
    step = command.upgrade if direction == "upgrade" else command.downgrade
    step(config(connection), revision)


def config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration: the folder of the migrations, and the connection."""
    made = Config()
    # The folder is a ConfigParser value, in which a percent sign starts an interpolation.
    made.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    return made


def _folder() -> Path:
    """Return the folder of migrations: in an installed package, or beside it in a checkout."""
    package = Path(__file__).parents[2]
    packed = package / "migrations"
    return packed if packed.is_dir() else package.parent / "migrations"
