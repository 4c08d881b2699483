"""Load: a thousand calls from everywhere at once (CL-74)."""

import asyncio
import gc
import threading
from pathlib import Path

import fairtrial as ft

ADD = "def f(a, b): return a + b"
EACH = 100


def add(a, b):
    return ft.Call(source=ADD, function="f", args=[a, b], isolation="reuse")


def held_kilobytes():
    gc.collect()
    return int(Path("/proc/self/smaps_rollup").read_text().partition("Private_Dirty:")[2].split()[0])


def test_a_thousand_calls_of_eight_threads_and_two_loops_are_each_answered(backend):
    """CL-55, CL-74: and memory does not grow with them."""
    backend.execute(add(0, 0))
    before = held_kilobytes()
    found = {}

    def ask(first):
        found[first] = [backend.execute(add(first, n)).value for n in range(EACH)]

    async def ask_all(first):
        answers = await asyncio.gather(*(backend.aexecute(add(first, n)) for n in range(EACH)))
        found[first] = [outcome.value for outcome in answers]

    threads = [threading.Thread(target=ask, args=(1000 * n,)) for n in range(8)]
    threads += [threading.Thread(target=lambda n=n: asyncio.run(ask_all(1000 * n))) for n in (8, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert found == {1000 * n: [1000 * n + m for m in range(EACH)] for n in range(10)}
    assert held_kilobytes() - before < 100_000


def test_calls_start_in_the_order_they_came(own, gates):
    """CL-36, CL-74"""
    from conformance_kinds import SLOTS
    from conftest import Gate

    held = [gates() for _ in range(SLOTS)]
    running = [own.submit(ft.Call(source=Gate.SOURCE, function="f", args=[gate.place])) for gate in held]
    for gate in held:
        gate.wait_begun()
    queued = [own.submit(add(n, 0)) for n in range(6)]
    held[0].open()  # one slot, so one after another
    starts = [future.outcome(60).metrics.started_at_ns for future in queued]
    held[1].open()
    assert starts == sorted(starts)
    assert all(future.outcome(60).verdict == "ok" for future in running)
