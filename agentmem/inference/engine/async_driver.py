"""
A thread that runs engine steps while coroutines wait.

A waiting coroutine holds no thread; it is woken by a callback into its event loop. The driver
thread ends after a while without work, and is a daemon, so that it does not keep the process alive.
"""

import threading

from agentmem.inference.engine.engine import Engine
from agentmem.inference.engine.request_state import RequestState
from agentmem.inference.engine.signal import Signal

_IDLE_S = 5.0
"""Seconds without a waiting coroutine after which the thread ends."""


class AsyncDriver:
    """
    Drives *engine* until every output passed to `watch` is done.

    Args:
        engine: the engine to step.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._guard = threading.Lock()
        self._outputs: dict[int, RequestState] = {}
        self._changed = Signal()
        self._has_work = threading.Event()
        self._changed.add(self._has_work.set)
        self._thread: threading.Thread | None = None

    def watch(self, output: RequestState) -> None:
        """Compute *output* without a waiting thread. Does not block."""
        self._outputs[id(output)] = output
        self._changed.set()
        with self._guard:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="agentmem-engine", daemon=True
                )
                self._thread.start()

    def _work(self) -> None:
        while True:
            self._has_work.clear()
            if not self._is_idle():
                try:
                    self._engine.drive(self._is_idle, self._changed)
                except Exception as error:  # noqa: BLE001 - each request hears of it
                    for output in list(self._outputs.values()):
                        output.fail(error)
            elif not self._has_work.wait(_IDLE_S):
                with self._guard:
                    if self._is_idle():
                        self._thread = None
                        return

    def _is_idle(self) -> bool:
        """Whether all outputs are done; done ones are removed."""
        for key, output in list(self._outputs.items()):
            if output.is_done:
                self._outputs.pop(key, None)
        return not self._outputs
