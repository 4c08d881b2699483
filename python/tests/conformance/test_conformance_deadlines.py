"""Deadlines: from the beginning of a call, never from its submission (CL-74)."""

import threading

from conformance_kinds import SLOTS
from conftest import Gate

import fairtrial as ft

NAP = "import time\ndef f(seconds): time.sleep(seconds)"


def held(backend, gates, count=SLOTS):
    """Calls that take every slot until their gates are opened."""
    made = [gates() for _ in range(count)]
    futures = [backend.submit(ft.Call(source=Gate.SOURCE, function="f", args=[gate.place])) for gate in made]
    for gate in made:
        gate.wait_begun()
    return made, futures


def test_a_deadline_ends_a_call_and_says_so(backend):
    """CL-74"""
    outcome = backend.execute(ft.Call(source=NAP, function="f", args=[600], timeout_s=0.5))
    assert outcome.verdict == "timeout"
    assert 0.5 <= outcome.metrics.wall_s < 30


def test_waiting_in_the_queue_is_not_charged(backend, gates):
    """CL-74: a call that waits longer than its deadline still has all of it."""
    made, futures = held(backend, gates)
    waiting = backend.submit(ft.Call(source=NAP, function="f", args=[0.01], timeout_s=1.0))
    pass_time(1.5)
    for gate in made:
        gate.open()
    assert waiting.outcome(60).verdict == "ok"
    assert [future.outcome(60).verdict for future in futures] == ["ok"] * SLOTS


def test_a_call_that_waits_too_long_is_called_off(backend, gates):
    """CL-74, EX-46: at the latest when a slot is free for it."""
    made, futures = held(backend, gates)
    late = gates()
    waiting = backend.submit(ft.Call(source=Gate.SOURCE, function="f", args=[late.place], queue_timeout_s=0.2))
    pass_time(0.5)
    for gate in made:
        gate.open()
    outcome = waiting.outcome(60)
    assert (outcome.verdict, outcome.error.type) == ("cancelled", "QueueTimeout")
    assert outcome.metrics.wall_s is None and not late.has_begun
    assert [future.outcome(60).verdict for future in futures] == ["ok"] * SLOTS


def pass_time(seconds):
    """That it passes is what is tested."""
    threading.Event().wait(seconds)


def test_a_queue_timeout_that_is_not_reached_changes_nothing(backend):
    """CL-74, EX-46"""
    call = ft.Call(source=NAP, function="f", args=[0.3], queue_timeout_s=30)
    assert backend.execute(call).verdict == "ok"
