"""Section 4 of the package's requirements: asyncio."""

import asyncio
import threading

import pytest
import work
from support import WAIT_S, is_gone, wait_until

import fairtrial as ft

DOUBLE = "def f(x): return x * 2"
HOLD = """
import os, time
def f(path):
    with open(path + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".new", path + ".begun")
    while not os.path.exists(path + ".open"):
        time.sleep(0.001)
    return "held"
"""


def double(x):
    return ft.Call(source=DOUBLE, function="f", args=[x])


def hold(gate):
    return ft.Call(source=HOLD, function="f", args=[gate.path])


try:
    import uvloop

    uvloop.new_event_loop().close()  # what it keeps for the whole process is there before any test
except ImportError:
    uvloop = None


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_arun_works_in_any_loop(name):
    """PY-37"""
    if name == "uvloop" and uvloop is None:
        pytest.skip("uvloop is not installed")
    new_loop = asyncio.new_event_loop if name == "asyncio" else uvloop.new_event_loop

    async def main():
        return [outcome.value for outcome in await asyncio.gather(*(ft.arun(double(x)) for x in range(5)))]

    loop = new_loop()
    try:
        assert loop.run_until_complete(asyncio.wait_for(main(), WAIT_S)) == [0, 2, 4, 6, 8]
    finally:
        loop.close()


def test_successive_loops_use_one_backend():
    """PY-37: no loop is stored"""
    with ft.LocalBackend(1) as backend:
        for x in range(3):
            assert asyncio.run(ft.arun(double(x), backend)).value == 2 * x


def test_two_loops_in_two_threads_share_a_backend(gate):
    """PY-37"""
    values = []

    async def main(x):
        for _ in range(5):
            values.append((await ft.arun(double(x), backend)).value)

    with ft.LocalBackend(2) as backend:
        threads = [threading.Thread(target=asyncio.run, args=(main(x),)) for x in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    assert sorted(values) == [2] * 5 + [4] * 5


def test_the_loop_runs_while_calls_do(gate):
    """PY-37"""

    async def main():
        call = asyncio.ensure_future(ft.arun(hold(gate)))
        while not gate.begun:
            await asyncio.sleep(0.001)
        gate.open()
        return (await asyncio.wait_for(call, WAIT_S)).value

    assert asyncio.run(main()) == "held"


def test_a_backend_works_with_async_with():
    """PY-37, PY-42"""

    async def main():
        async with ft.LocalBackend(1) as backend:
            return (await backend.aexecute(double(4))).value

    assert asyncio.run(main()) == 8


def test_a_backend_without_aexecute_is_awaited_too():
    """PY-37, PY-42"""

    class Answering:
        def execute(self, call):
            return call

        def shutdown(self):
            pass

    assert asyncio.run(ft.arun("anything", Answering())) == "anything"


async def _begun(gate):
    while not gate.begun:
        await asyncio.sleep(0.001)
    return gate.wait_begun()


@pytest.mark.parametrize("how", ["cancel", "wait_for"])
def test_cancelling_a_task_kills_its_call_only(gates, how):
    """PY-38"""
    stopped, sibling = gates(), gates()

    async def main():
        with ft.LocalBackend(2) as backend:
            other = asyncio.ensure_future(ft.arun(hold(sibling), backend))
            if how == "cancel":
                task = asyncio.ensure_future(ft.arun(hold(stopped), backend))
                pid = await _begun(stopped)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                task = asyncio.ensure_future(asyncio.wait_for(ft.arun(hold(stopped), backend), 1.0))
                pid = await _begun(stopped)
                with pytest.raises(asyncio.TimeoutError):
                    await task
            wait_until(lambda: is_gone(pid), what="the end of the process")
            sibling.open()
            return (await asyncio.wait_for(other, WAIT_S)).value

    assert asyncio.run(main()) == "held"


def test_cancelling_run_in_executor_kills_its_call(gates):
    """PY-38"""
    stopped, sibling = gates(), gates()

    async def main():
        loop = asyncio.get_running_loop()
        with ft.Executor(2) as executor:
            other = loop.run_in_executor(executor, work.pass_gate, sibling.path, "fine")
            future = loop.run_in_executor(executor, work.pass_gate, stopped.path)
            pid = await _begun(stopped)
            future.cancel()
            while not is_gone(pid):
                await asyncio.sleep(0.001)
            sibling.open()
            return await asyncio.wait_for(other, WAIT_S)

    assert asyncio.run(main()) == "fine"


def test_wrap_future_works(one):
    """PY-38"""

    async def main():
        return await asyncio.wait_for(asyncio.wrap_future(one.submit(work.square, 5)), WAIT_S)

    assert asyncio.run(main()) == 25


def test_a_loop_closed_with_calls_in_flight_kills_them_quietly(program, tmp_path):
    """PY-39"""
    ended = program(
        """
        import asyncio, gc, logging, sys, fairtrial as ft
        from test_asyncio import HOLD, hold
        from support import Gate, is_gone, wait_until
        gates = [Gate(sys.argv[1] + str(number)) for number in range(2)]
        loop, backend = asyncio.new_event_loop(), ft.LocalBackend(2)
        tasks = [loop.create_task(ft.arun(hold(gate), backend)) for gate in gates]
        async def begun():
            while not all(gate.begun for gate in gates):
                await asyncio.sleep(0.001)
        loop.run_until_complete(begun())
        pids = [gate.wait_begun() for gate in gates]
        for task in tasks:
            task._log_destroy_pending = False  # asyncio's own word on tasks that are dropped
        loop.close()
        del tasks, task, loop
        gc.collect()
        wait_until(lambda: all(is_gone(pid) for pid in pids), what="the end of the calls")
        print("killed")
        """,
        str(tmp_path / "gate"),
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "killed\n", "")


def test_asyncio_run_that_ends_kills_what_is_left(program, tmp_path):
    """PY-39"""
    ended = program(
        """
        import asyncio, sys, fairtrial as ft
        from test_asyncio import hold
        from support import Gate, is_gone, wait_until
        gate = Gate(sys.argv[1])
        async def main():
            asyncio.ensure_future(ft.arun(hold(gate)))
            while not gate.begun:
                await asyncio.sleep(0.001)
        asyncio.run(main())
        wait_until(lambda: is_gone(gate.wait_begun()))
        print("killed")
        """,
        str(tmp_path / "gate"),
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "killed\n", "")
