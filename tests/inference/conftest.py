"""Tiny models run on one thread: several would mostly wait for each other."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    threads = torch.get_num_threads()
    if request.node.get_closest_marker("model") is None:
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
