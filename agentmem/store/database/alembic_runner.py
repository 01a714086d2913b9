"""Runs the migrations on a connection. Loads Alembic: `migrate` imports it only to move."""

from pathlib import Path
from typing import Literal

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection

__all__ = ["CommandError", "config", "move"]


def move(connection: Connection, revision: str, direction: Literal["upgrade", "downgrade"]) -> None:
    """
    Run the migrations between where the database is and *revision*. The caller commits.

    Raises:
        CommandError: there is no such revision in that direction.
    """
    step = command.upgrade if direction == "upgrade" else command.downgrade
    step(config(connection), revision)


def config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration: where the migrations are, and what they run on."""
    made = Config()
    # The folder is read as a ConfigParser value, in which a percent sign begins a reference.
    made.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    return made


def _folder() -> Path:
    """Find the migrations: inside an installed package, beside the package in a checkout."""
    package = Path(__file__).parents[2]
    packed = package / "migrations"
    return packed if packed.is_dir() else package.parent / "migrations"
