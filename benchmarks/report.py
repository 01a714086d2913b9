"""What every benchmark prints as its last line: one JSON object, with where it was measured."""

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def print_json(figures: Mapping[str, Any]) -> None:
    """Print *figures*, the machine, the versions and the commit as one line."""
    print(json.dumps({**figures, **_where()}))


def _where() -> dict[str, Any]:
    names = ("agentmem-window", "torch", "transformers")
    return {
        "machine": {
            "cpu": _cpu_name(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
        },
        "versions": {"python": platform.python_version()}
        | {name: version for name in names if (version := _version(name)) is not None},
        "commit": _commit(),
    }


def _version(name: str) -> str | None:
    """Return the version of a package; None without it, as where only some are set up."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - a fixed command
    except (OSError, subprocess.CalledProcessError):
        return None
