"""
Health check of a memory: database, index, compaction and model.

It does not wait for a step of the model, a page being embedded or a hanging database.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from agentmem.errors import AgentMemError
from agentmem.memory.background_jobs import Background
from agentmem.protocols import LanguageModel, ReportingModel, ReportingSearchIndex, SearchIndex
from agentmem.store import Store
from agentmem.types import Health, IndexHealth, ModelHealth

T = TypeVar("T")


def health_of(
    store: Store,
    background: Background,
    recall: SearchIndex | None,
    model: LanguageModel | None,
    timeout_s: float,
) -> Health:
    """Return the health of all parts, within about *timeout_s* seconds."""
    started = time.monotonic()
    database = store.probe.check(timeout_s)
    return Health(
        database=database,
        compaction=background.health(),
        index=_index(recall),
        model=None if model is None else _model(model),
        seconds=time.monotonic() - started,
    )


def _index(recall: SearchIndex | None) -> IndexHealth | None:
    if recall is None or not isinstance(recall, ReportingSearchIndex):
        return None
    try:
        return recall.health()
    except Exception as error:  # noqa: BLE001 - it may be code of the user's
        return IndexHealth(is_idle=False, last_error=f"{type(error).__name__}: {error}")


def _model(model: LanguageModel) -> ModelHealth:
    if not isinstance(model, ReportingModel):
        return ModelHealth(name=model.name)
    try:
        return model.health()
    except Exception as error:  # noqa: BLE001 - it may be code of the user's
        return ModelHealth(name=model.name, error=AgentMemError(f"{type(error).__name__}: {error}"))


def within(timeout_s: float, work: Callable[[], T]) -> T | None:
    """
    Return the result of *work*; None on a timeout, after which it is abandoned.

    Raises:
        AgentMemError: raised by *work*.
    """
    results: list[T] = []
    errors: list[AgentMemError] = []

    def run() -> None:
        try:
            results.append(work())
        except AgentMemError as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="agentmem-health", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    return results[0] if results else None
