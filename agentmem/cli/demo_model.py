"""The model of the demo: the default one, a folder, a server, or a script without torch."""

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec

from rich.console import Console

from agentmem.cli import story
from agentmem.cli.server_model import ServerModel
from agentmem.config import InferenceConfig
from agentmem.errors import InvalidInputError
from agentmem.protocols import LanguageModel
from agentmem.testing import ScriptedModel

SCRIPTED = "scripted"
_SMALL = "HuggingFaceTB/SmolLM2-135M-Instruct"
_BETTER = "Play it with a better one: --model FOLDER or --server URL."


@contextlib.contextmanager
def demo_model(
    console: Console, name: str | None, server: str | None, config: InferenceConfig
) -> Iterator[tuple[LanguageModel, str]]:
    """
    Load the model of the demo, and yield it with a remark on its quality.

    Raises:
        ModelLoadError: the model *name* cannot be loaded.
        InvalidInputError: *server* is not OpenAI-compatible, or is given with ``scripted``.
    """
    if server is not None:
        if name == SCRIPTED:
            raise InvalidInputError("--model scripted asks no server: leave out --server")
        with ServerModel(server, model=name) as remote:
            remark = f"{remote.name} answers, at {server}; its tokens are estimated here."
            yield remote, remark
        return
    has_torch = find_spec("torch") is not None and find_spec("transformers") is not None
    if name == SCRIPTED or (name is None and not has_torch):
        why = "" if name == SCRIPTED else "torch is not installed, so "
        remark = f"{why}answers are read from a script; the memory is real. {_BETTER}"
        yield ScriptedModel(story.answers()), remark[0].upper() + remark[1:]
        return
    from agentmem.cli.loading import load_model  # noqa: PLC0415 - loads torch, which takes seconds

    with load_model(console, name or _SMALL, config) as model:
        remark = f"{model.name} answers."
        if name is None:
            remark += f" It is very small, and is here to try the memory without a GPU. {_BETTER}"
        yield model, remark
