"""Map many requests over the engine with bounded concurrency; results in input order."""

from collections import deque
from collections.abc import Callable, Iterable

from agentmem.errors import AgentMemError
from agentmem.inference.engine.request_handle import RequestHandle
from agentmem.protocols import GenerationRequest
from agentmem.types import FinishReason, Generation, Usage

OnResult = Callable[[int, int], None]
"""Progress callback: (done, total)."""


def map_requests(
    submit: Callable[[GenerationRequest], RequestHandle],
    requests: Iterable[GenerationRequest],
    *,
    at_once: int,
    on_result: OnResult | None = None,
) -> list[Generation]:
    """
    Answer all *requests*.

    A failure is a result with `FinishReason.ERROR` and the message; the others continue.

    Args:
        submit: submits one request.
        requests: the requests.
        at_once: maximum requests in flight.
        on_result: called after each result.
    """
    todo = deque(enumerate(requests))
    total = len(todo)
    results: dict[int, Generation] = {}
    waiting: deque[tuple[int, RequestHandle]] = deque()
    while todo or waiting:
        while todo and len(waiting) < at_once:
            index, request = todo.popleft()
            try:
                waiting.append((index, submit(request)))
            except AgentMemError as error:
                results[index] = _failed(request, error)
        if waiting:
            index, pending = waiting.popleft()
            results[index] = _result(pending)
        if on_result is not None:
            on_result(len(results), total)
    return [results[index] for index in range(total)]


def _result(pending: RequestHandle) -> Generation:
    try:
        return pending.result()
    except Exception as error:  # noqa: BLE001 - the model may raise anything; others are to go on
        return _failed(pending.request, error)


def _failed(request: GenerationRequest, error: Exception) -> Generation:
    usage = Usage(
        prompt_tokens=len(request.token_ids),
        cached_tokens=0,
        completion_tokens=0,
        ttft_s=0.0,
        total_s=0.0,
    )
    return Generation(
        text="",
        token_ids=(),
        finish_reason=FinishReason.ERROR,
        usage=usage,
        error=f"{type(error).__name__}: {error}",
    )
