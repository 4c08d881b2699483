"""Verdicts: each by one misbehaving program (CL-74)."""

import pytest

import fairtrial as ft

HANG = "def f():\n    while True: pass"

VERDICTS = {
    "ok": ("def f(): return 1", {}),
    "exception": ("def f(): 1 / 0", {}),
    "signal": ("import os\ndef f(): os.abort()", {}),
    "exit": ("import os\ndef f(): os._exit(3)", {}),
    "no_result": ("import os\ndef f(): os._exit(0)", {}),
    "timeout": (HANG, {"timeout_s": 0.3}),
    "cpu_limit": (HANG, {"limits": {"cpu_s": 0.5}, "sandbox": "limits", "timeout_s": 60}),
    "memory_limit": (
        "def f():\n    x = bytearray(400_000_000)\n    return len(x)",
        {"limits": {"memory_bytes": 150_000_000}, "sandbox": "limits", "timeout_s": 60},
    ),
    "process_limit": (
        "import os, time\ndef f():\n    while True:\n        if os.fork() == 0:\n            time.sleep(60)",
        {"limits": {"processes": 8}, "sandbox": "limits", "timeout_s": 60},
    ),
    "output_limit": ("def f():\n    while True: print('x' * 1000)", {"limits": {"output_bytes": 10_000}}),
    "bad_result": ("def f(): return object()", {}),
    "setup_failed": ("def f(): pass", {"python": "/no/such/python"}),
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_way_to_end_has_its_verdict(backend, verdict):
    """CL-1, CL-74"""
    source, terms = VERDICTS[verdict]
    outcome = backend.execute(ft.Call(source=source, function="f", **terms))
    assert outcome.verdict == verdict, outcome.error
    assert (outcome.error is None) == (verdict == "ok")


COMMANDS = {
    "ok": (["true"], 0, None),
    "exit": (["sh", "-c", "exit 5"], 5, None),
    "signal": (["sh", "-c", "kill -6 $$"], None, 6),
}


@pytest.mark.parametrize("verdict", COMMANDS)
def test_a_commands_end_has_its_verdict(backend, verdict):
    """CL-1, CL-74"""
    argv, code, signal = COMMANDS[verdict]
    outcome = backend.execute(ft.Call(argv=argv))
    assert (outcome.verdict, outcome.exit.code, outcome.exit.signal) == (verdict, code, signal)


def test_a_program_that_is_nowhere_is_a_failed_setup(backend):
    """CL-22, CL-74"""
    outcome = backend.execute(ft.Call(argv=["/no/such/program"]))
    assert outcome.verdict == "setup_failed"
    assert "/no/such/program" in outcome.error.message


def test_what_was_asked_for_is_in_force(backend):
    """CL-1, CL-74"""
    for level in ("none", "limits"):
        outcome = backend.execute(ft.Call(source="def f(): return 1", function="f", sandbox=level))
        assert outcome.in_force["requested"] == level


def test_a_reused_workers_failure_is_that_calls_alone(backend):
    """CL-74"""
    crash = ft.Call(source="import os\ndef f(): os._exit(9)", function="f", isolation="reuse")
    fine = ft.Call(source="def f(): return 5", function="f", isolation="reuse")
    verdicts = [backend.execute(call).verdict for call in (fine, crash, fine)]
    assert verdicts == ["ok", "exit", "ok"]
