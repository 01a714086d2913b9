"""Loads a local model with a progress bar. Importing this module loads torch."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from agentmem.config import InferenceConfig
from agentmem.inference import LocalModel


def load_model(console: Console, name: str, config: InferenceConfig) -> LocalModel:
    """
    Load the model *name*.

    Raises:
        ModelLoadError: no model can be loaded from there.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("loading the model", total=1.0)

        def show(stage: str, fraction: float) -> None:
            progress.update(task, description=stage, completed=fraction)

        model = LocalModel.load(name, config=config, on_progress=show)
        progress.update(task, description=f"{model.name} is ready", completed=1.0)
    return model
