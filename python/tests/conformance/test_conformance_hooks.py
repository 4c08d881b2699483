"""Hooks: each event once, in order, and a hook that fails harms nobody (CL-74)."""

from collections import Counter

import fairtrial as ft

ONE = "def f(): return 1"


def listen(backend, *names):
    heard = []
    for name in names:
        getattr(backend, "on_" + name)(heard.append)
    return heard


def test_each_call_is_submitted_started_and_completed_once_and_in_that_order(own):
    """CL-61, CL-74, EX-92"""
    heard = listen(own, "submit", "start", "complete", "shutdown")
    futures = [own.submit(ft.Call(source=ONE, function="f")) for _ in range(6)]
    for future in futures:
        assert future.outcome(60).value == 1
    own.shutdown()
    assert heard[-1].name == "shutdown"
    for future in futures:
        assert [event.name for event in heard if event.call_id == future.call_id] == ["submit", "start", "complete"]
    assert len(heard) == 19


def test_a_call_is_told_complete_before_its_outcome_is_there(own):
    """CL-61, CL-74, EX-92: whoever has one and submits the next call has that told later."""
    heard = listen(own, "submit", "complete")
    for _ in range(50):  # who tells them in the other order is not always overtaken
        own.execute(ft.Call(source=ONE, function="f", isolation="reuse"))
    own.shutdown()
    assert [event.name for event in heard] == ["submit", "complete"] * 50


def test_a_complete_has_the_verdict(own):
    """CL-74"""
    heard = listen(own, "complete")
    own.execute(ft.Call(source=ONE, function="f"))
    own.execute(ft.Call(source="def f(): 1 / 0", function="f"))
    own.shutdown()
    assert [event.verdict for event in heard] == ["ok", "exception"]


def test_a_hook_that_raises_harms_nobody(own):
    """CL-74, EX-93"""
    own.on_submit(lambda event: 1 / 0)
    own.on_complete(lambda event: 1 / 0)
    heard = listen(own, "complete")
    assert [own.execute(ft.Call(source=ONE, function="f")).value for _ in range(3)] == [1] * 3
    own.shutdown()
    assert len(heard) == 3


def test_who_unsubscribed_hears_nothing(own):
    """CL-74, PY-43"""
    first, second = [], []
    unsubscribe = own.on_complete(first.append)
    own.on_complete(second.append)
    unsubscribe()
    unsubscribe()
    own.execute(ft.Call(source=ONE, function="f"))
    own.shutdown()
    assert (len(first), len(second)) == (0, 1)


def test_a_hook_may_call_the_backend_back(own):
    """CL-74, PY-43"""
    import threading

    values, done = [], threading.Event()

    def again(event):
        if event.call_id == 1:
            values.append(own.execute(ft.Call(source=ONE, function="f")).value)
            done.set()

    own.on_complete(again)
    own.execute(ft.Call(source=ONE, function="f"))
    assert done.wait(60) and values == [1]


def test_each_worker_that_starts_also_exits(own):
    """CL-74, EX-91"""
    heard = listen(own, "worker_start", "worker_exit")
    for _ in range(3):
        own.execute(ft.Call(source=ONE, function="f"))
    own.shutdown()
    counts = Counter((event.name, event.worker_id) for event in heard)
    started = {worker for name, worker in counts if name == "worker_start"}
    assert started and started == {worker for name, worker in counts if name == "worker_exit"}
    assert set(counts.values()) == {1}


def test_a_call_is_running_while_it_runs(own, gates):
    """CL-74"""
    from conftest import Gate, wait_until

    gate = gates()
    future = own.submit(ft.Call(source=Gate.SOURCE, function="f", args=[gate.place]))
    gate.wait_begun()
    wait_until(future.running, "its being told")
    gate.open()
    assert future.outcome(60).verdict == "ok" and not future.running()
