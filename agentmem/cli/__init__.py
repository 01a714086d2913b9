"""The command line. Each command is a few calls of the SDK and a table; only this prints."""

from agentmem.cli.app import main

__all__ = ["main"]
