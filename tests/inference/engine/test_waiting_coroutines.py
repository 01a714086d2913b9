"""Coroutines wait for tokens without threads, and stop waiting at once."""

import asyncio
import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentmem.errors import InferenceError
from tests.inference.tiny import ask, model_with_blocks, random_ids, tiny_model, tiny_module

MODULE = tiny_module()


@pytest.mark.slow
def test_more_coroutines_wait_than_the_loop_has_threads_for():
    """The loop's own pool has one thread, and that is taken."""
    model = tiny_model(module=MODULE)
    requests = [ask(random_ids(20, seed=n), 8) for n in range(12)]
    expected = [tiny_model(module=MODULE).generate(request).text for request in requests]

    async def main():
        release = threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        taken = asyncio.ensure_future(asyncio.to_thread(release.wait, 60))
        results = await asyncio.wait_for(asyncio.gather(*map(model.agenerate, requests)), 60)
        release.set()
        await taken
        return [result.text for result in results]

    assert asyncio.run(main()) == expected
    assert model.stats().passes < 60
    model.check()


@pytest.mark.slow
def test_a_time_out_is_prompt_while_others_run():
    model = model_with_blocks(200, module=MODULE)

    async def main():
        others = [
            asyncio.create_task(model.agenerate(ask(random_ids(9, seed=n), 90))) for n in (1, 2)
        ]
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(model.agenerate(ask(random_ids(9), 100)), 0.05)
        took = time.monotonic() - started
        done = [other.done() for other in others]
        await asyncio.gather(*others)
        return took, done

    took, done = asyncio.run(main())

    assert done == [False, False] or took < 0.5
    assert model.kv_usage().in_use == 0
    model.check()


def test_coroutines_and_threads_wait_for_one_request():
    model = tiny_model(module=MODULE)
    pending = model.submit(ask(random_ids(9), 60))

    async def main():
        thread = asyncio.to_thread(pending.result)
        return await asyncio.gather(pending.aresult(), pending.aresult(), thread)

    results = asyncio.run(main())

    assert len({id(one) for one in results}) == 1


def test_a_stream_is_closed_while_another_thread_waits_for_its_next_chunk():
    model = model_with_blocks(60, module=MODULE)
    stream = model.stream(ask(random_ids(21), 200))
    next(stream)
    got = []
    reader = threading.Thread(target=lambda: got.extend(stream))
    reader.start()

    stream.close()
    reader.join(20)

    assert not reader.is_alive()
    assert model.kv_usage().in_use == 0
    assert list(stream) == []
    model.check()


@pytest.mark.slow
def test_an_async_stream_that_is_closed_or_dropped_gives_its_blocks_back():
    model = model_with_blocks(60, module=MODULE)

    async def main():
        first = model.submit(ask(random_ids(21), 200))
        second = model.submit(ask(random_ids(21, seed=1), 200))
        await anext(first)
        await anext(second)
        await first.aclose()
        del second
        gc.collect()
        return model.kv_usage().in_use

    assert asyncio.run(main()) == 0
    model.check()


@pytest.mark.slow
def test_closing_the_model_ends_what_coroutines_wait_for():
    model = tiny_model(module=MODULE)

    async def main():
        running = asyncio.create_task(model.agenerate(ask(random_ids(20), 400)))
        await asyncio.sleep(0.05)
        await asyncio.gather(asyncio.to_thread(model.close), asyncio.to_thread(model.close))
        with pytest.raises(InferenceError, match="is closed"):
            await running

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_of_the_process_is_told_at_once():
    model = tiny_model(module=MODULE)
    pending = model.submit(ask(random_ids(20), 20))
    next(pending)
    read, write = os.pipe()

    child = os.fork()
    if child == 0:
        said = []
        for use in (
            lambda: model.generate(ask(random_ids(9), 2)),
            lambda: next(pending),
            model.kv_usage,
        ):
            try:
                use()
                said.append("worked")
            except InferenceError as error:
                said.append("fork" if "its fork" in str(error) else str(error))
        os.write(write, ",".join(said).encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(read, 100) == b"fork,fork,fork"
    assert pending.result().usage.completion_tokens == 20
    model.check()
