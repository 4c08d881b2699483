"""Timeouts by processor time, and what outcomes tell of load (FA-14 to FA-16)."""

import pickle
import time

import pytest

import fairtrial as ft

SPIN = """
import time
def f(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""


def spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return seconds


def test_a_call_is_judged_by_the_processor_time_it_used():
    slow = ft.run(ft.Call(source=SPIN, function="f", args=[60], timeout_s=ft.CpuTime(0.1)))
    assert slow.verdict == "timeout"
    assert "of processor time (limit 100ms)" in slow.error.message
    assert slow.metrics.margin.limit == "timeout_s"
    assert slow.metrics.margin.used > 1
    quick = ft.run(ft.Call(source=SPIN, function="f", args=[0.01], timeout_s=5, time="cpu"))
    assert quick.ok
    assert quick.tried_alone is None
    assert quick.metrics.margin.used < 1
    assert quick.metrics.wait_s <= quick.metrics.wall_s
    assert quick.metrics.wait_source == "schedstat"


@pytest.mark.parametrize("isolation", ["reuse", "fresh"])
def test_an_executor_counts_processor_time(isolation):
    # A worker imports this module within its first call.
    with ft.Executor(2, isolation=isolation, timeout=ft.CpuTime(1)) as executor:
        assert executor.submit(spin, 0.01).result() == 0.01
        with pytest.raises(ft.TimedOut):
            executor.submit(spin, 60).result()
        assert executor.options(timeout=ft.CpuTime(20)).submit(spin, 0.2).result() == 0.2


def test_a_first_run_survives_pickling():
    outcome = ft.run(ft.Call(source=SPIN, function="f", args=[60], timeout_s=ft.CpuTime(0.05)))
    again = pickle.loads(pickle.dumps(outcome))
    assert again.tried_alone == outcome.tried_alone
    assert again.metrics == outcome.metrics
    if outcome.tried_alone is not None:  # the machine was busy
        assert outcome.tried_alone.verdict == "timeout"
        assert outcome.tried_alone.metrics.margin.used > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "cpu"}, "set `timeout_s`, too"),
        ({"timeout_s": 1, "time": "fast"}, "neither `wall` nor `cpu`"),
        ({"timeout_s": ft.CpuTime(0)}, "must be a positive number of seconds"),
        ({"timeout_s": ft.CpuTime(None)}, "needs a number of seconds"),
        ({"timeout_s": ft.CpuTime(1), "time": "wall"}, "a `CpuTime` counts processor time"),
    ],
)
def test_what_is_no_timeout_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ft.Call(argv=["true"], **options)
