"""Metrics: all there, and true whatever the call does to its clock (CL-74)."""

import dataclasses
import time

import fairtrial as ft

NAP = "import time\ndef f(seconds): time.sleep(seconds)"


def test_every_metric_is_there(backend):
    """CL-1, CL-74"""
    metrics = backend.execute(ft.Call(source=NAP, function="f", args=[0.01])).metrics
    missing = [field.name for field in dataclasses.fields(metrics) if getattr(metrics, field.name) is None]
    assert missing == []
    assert metrics.leaked_processes == 0


def test_metrics_are_true_against_a_patched_clock(backend):
    """CL-74"""
    source = (
        "import time\n"
        "real = time.sleep\n"
        "def f():\n"
        "    time.time = time.monotonic = time.perf_counter = lambda: 0.0\n"
        "    time.time_ns = time.monotonic_ns = time.perf_counter_ns = lambda: 0\n"
        "    real(0.5)\n"
    )
    before = time.time_ns()
    metrics = backend.execute(ft.Call(source=source, function="f")).metrics
    after = time.time_ns()
    assert 0.5 <= metrics.wall_s <= (after - before) / 1e9
    assert before <= metrics.started_at_ns < metrics.finished_at_ns <= after


def test_processor_time_is_what_was_used(backend):
    """CL-74"""
    source = "import time\ndef f():\n    while time.process_time() < 0.4: pass"
    metrics = backend.execute(ft.Call(source=source, function="f")).metrics
    assert 0.3 <= metrics.user_s + metrics.system_s < 10


def test_the_peak_is_what_was_held(backend):
    """CL-74"""
    source = "def f():\n    x = bytearray(120_000_000)\n    return len(x)"
    metrics = backend.execute(ft.Call(source=source, function="f")).metrics
    assert 120_000_000 <= metrics.peak_rss_bytes < 600_000_000


def test_a_node_says_which_it_is(backend):
    """CL-1, CL-74"""
    source = "import os\ndef f(): return os.environ['FAIRTRIAL_NODE_ID']"
    outcome = backend.execute(ft.Call(source=source, function="f"))
    assert outcome.value == outcome.metrics.node_id != ""


def test_children_that_outlived_their_call_are_counted(backend):
    """CL-74"""
    source = (
        "import os, time\n"
        "def f():\n"
        "    for _ in range(3):\n"
        "        if os.fork() == 0:\n"
        "            time.sleep(600)\n"
        "    time.sleep(0.2)\n"
    )
    assert backend.execute(ft.Call(source=source, function="f")).metrics.leaked_processes == 3
