"""Lifecycle: nothing before the first call, nothing after the last (CL-74)."""

import asyncio
import os
from pathlib import Path

import pytest
from conformance_kinds import SLOTS
from conftest import WAIT_S, Gate, is_gone, wait_until

import fairtrial as ft

ONE = "def f(): return 1"
PID = "import os\ndef f(): return os.getpid(), os.getppid()"


def children():
    found = set()
    for task in os.listdir("/proc/self/task"):
        found |= set(Path(f"/proc/self/task/{task}/children").read_text().split())
    return found


def test_a_backend_that_is_only_made_starts_nothing(make):
    """CL-55, CL-74"""
    before = children()
    backend = make()
    assert isinstance(backend, ft.Backend) and isinstance(backend, ft.Hooks)
    assert children() == before
    backend.shutdown()
    assert children() == before


def test_shutdown_may_be_asked_for_again_and_is_told_once(make):
    """CL-74, EX-92"""
    heard = []
    backend = make()
    backend.on_shutdown(heard.append)
    assert backend.execute(ft.Call(source=ONE, function="f")).value == 1
    for _ in range(3):
        backend.shutdown()
    assert len(heard) == 1


def test_an_end_without_a_call_is_told_once(make):
    """CL-74, EX-92"""
    heard = []
    backend = make()
    backend.on_shutdown(heard.append)
    backend.shutdown()
    backend.shutdown()
    assert len(heard) == 1


def test_no_call_is_taken_after_shutdown(make):
    """CL-74"""
    with make() as backend:
        assert backend.execute(ft.Call(source=ONE, function="f")).value == 1
    for refused in (backend.submit, backend.execute):
        with pytest.raises(ft.EngineError, match="shut down"):
            refused(ft.Call(source=ONE, function="f"))


def test_shutdown_waits_for_what_was_submitted(make):
    """CL-74"""
    backend = make()
    futures = [backend.submit(ft.Call(source=ONE, function="f")) for _ in range(5)]
    backend.shutdown()
    assert [future.outcome(0).value for future in futures] == [1] * 5


def test_shutdown_kills_what_runs_too_long(make, gates):
    """CL-74"""
    backend = make()
    gate = gates()
    future = backend.submit(ft.Call(source=Gate.SOURCE, function="f", args=[gate.place]))
    pid = gate.wait_begun()
    backend.shutdown(kill_after=0.1)
    assert future.outcome(0).verdict == "cancelled"
    wait_until(lambda: is_gone(pid), "the call's end")


def test_shutdown_cancels_what_is_queued_if_asked_to(make, gates):
    """CL-74"""
    backend = make()
    held = [gates() for _ in range(SLOTS)]
    running = [backend.submit(ft.Call(source=Gate.SOURCE, function="f", args=[gate.place])) for gate in held]
    for gate in held:
        gate.wait_begun()
    queued = backend.submit(ft.Call(source=ONE, function="f"))
    backend.shutdown(wait=False, cancel_queued=True)
    assert queued.outcome(WAIT_S).verdict == "cancelled"
    for gate in held:
        gate.open()
    assert [future.outcome(WAIT_S).verdict for future in running] == ["ok"] * SLOTS


def test_nothing_of_a_call_is_left_running(make):
    """CL-74: neither the worker nor what it left behind."""
    source = (
        "import os, time\ndef f():\n    pid = os.fork()\n    time.sleep(600 * (not pid))\n    return pid, os.getpid()"
    )
    with make() as backend:
        pids = backend.execute(ft.Call(source=source, function="f")).value
        kept = backend.execute(ft.Call(source=PID, function="f", isolation="reuse")).value[0]
    wait_until(lambda: all(map(is_gone, pids)), "the calls' end")
    if isinstance(backend, ft.LocalBackend):  # an agent's workers are kept for whoever comes next
        wait_until(lambda: is_gone(kept), "the worker's end")


def test_it_works_in_async_with(make):
    """CL-74, PY-42"""

    async def main():
        async with make() as backend:
            outcomes = await asyncio.gather(*(backend.aexecute(ft.Call(source=ONE, function="f")) for _ in range(4)))
            return [outcome.value for outcome in outcomes], backend

    values, backend = asyncio.run(main())
    assert values == [1] * 4
    with pytest.raises(ft.EngineError):
        backend.execute(ft.Call(source=ONE, function="f"))


def test_run_takes_it(backend):
    """CL-74, PY-40"""
    assert ft.run(ft.Call(source=ONE, function="f"), backend).value == 1
