"""Cancelling: queued, running, finished; one outcome each (CL-74)."""

import asyncio
import os
import time
from pathlib import Path

from conformance_kinds import SLOTS
from conftest import WAIT_S, Gate, is_gone, wait_until

import fairtrial as ft

ONE = "def f(): return 1"
TREE = (
    "import os, time\n"
    "def f(place):\n"
    "    pid = os.fork()\n"
    "    if pid == 0:\n"
    "        os.setsid()\n"
    "        if os.fork() == 0:\n"
    "            with open(place + '.new', 'w') as file: file.write(f'{os.getppid()} {os.getpid()}')\n"
    "            os.rename(place + '.new', place)\n"
    "        time.sleep(600)\n"
    "    time.sleep(600)\n"
)


def gate_call(gate, value=1):
    return ft.Call(source=Gate.SOURCE, function="f", args=[gate.place, value])


def test_a_queued_call_that_is_cancelled_never_starts(backend, gates):
    """CL-20, CL-74"""
    held = [gates() for _ in range(SLOTS)]
    running = [backend.submit(gate_call(gate)) for gate in held]
    for gate in held:
        gate.wait_begun()
    never = gates()
    queued = backend.submit(gate_call(never))
    assert queued.cancel() and queued.cancelled()
    assert queued.outcome(WAIT_S).verdict == "cancelled"
    for gate in held:
        gate.open()
    assert [future.outcome(WAIT_S).verdict for future in running] == ["ok"] * SLOTS
    assert backend.execute(ft.Call(source=ONE, function="f")).value == 1
    assert not never.has_begun


def test_a_running_call_that_is_cancelled_is_gone_within_a_second(backend, tmp_path):
    """CL-20, CL-68, CL-74: with all of its tree, however it hid."""
    place = str(tmp_path / "pids")
    future = backend.submit(ft.Call(source=TREE, function="f", args=[place]))
    wait_until(lambda: os.path.exists(place), "the tree")
    pids = [int(word) for word in Path(place).read_text().split()]
    begun = time.monotonic()
    assert future.cancel()
    assert future.outcome(WAIT_S).verdict == "cancelled"
    wait_until(lambda: all(map(is_gone, pids)), "the tree's end")
    assert time.monotonic() - begun < 1.0 + _busy()


def _busy():
    """On a machine with more to do than processors nothing is on time."""
    return max(os.getloadavg()[0] - os.cpu_count(), 0.0)


def test_a_finished_call_cannot_be_cancelled(backend):
    """CL-21, CL-74"""
    future = backend.submit(ft.Call(source=ONE, function="f"))
    assert future.outcome(WAIT_S).verdict == "ok"
    assert not future.cancel() and not future.cancelled()
    assert future.outcome().value == 1


def test_a_cancelled_call_frees_its_slot(backend, gates):
    """CL-74"""
    for _ in range(3):
        held = [gates() for _ in range(SLOTS)]
        futures = [backend.submit(gate_call(gate)) for gate in held]
        for gate in held:
            gate.wait_begun()
        for future in futures:
            future.cancel()
    assert backend.execute(ft.Call(source=ONE, function="f")).value == 1


def test_a_call_cancelled_again_and_again_has_one_outcome(own, gates):
    """CL-74, EX-92"""
    heard = []
    own.on_complete(lambda event: heard.append((event.call_id, event.verdict)))
    gate = gates()
    future = own.submit(gate_call(gate))
    gate.wait_begun()
    assert all(future.cancel() for _ in range(5))
    assert future.outcome(WAIT_S).verdict == "cancelled"
    own.shutdown()
    assert heard == [(1, "cancelled")]


def test_cancelling_the_task_that_waits_kills_the_call(backend, tmp_path):
    """CL-21, CL-74"""
    place = str(tmp_path / "pids")

    async def give_up():
        task = asyncio.create_task(backend.aexecute(ft.Call(source=TREE, function="f", args=[place])))
        while not os.path.exists(place):
            await asyncio.sleep(0.01)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "cancelled"

    assert asyncio.run(asyncio.wait_for(give_up(), WAIT_S)) == "cancelled"
    pids = [int(word) for word in Path(place).read_text().split()]
    wait_until(lambda: all(map(is_gone, pids)), "the tree's end")
