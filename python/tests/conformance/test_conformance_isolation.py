"""Isolation: nothing leaks from one call to the next, and no call harms another (CL-74)."""

import os

import pytest
from conftest import Gate

import fairtrial as ft

COUNT = "import builtins, os\ndef f():\n    builtins.n = getattr(builtins, 'n', 0) + 1\n    return builtins.n"
HARM = {
    "crash": ("import os\ndef f(): os.abort()", {}, "signal"),
    "hang": ("def f():\n    while True: pass", {"timeout_s": 0.5}, "timeout"),
    "memory bomb": (
        "def f():\n    x = []\n    while True: x.append(bytearray(10_000_000))",
        {"limits": {"memory_bytes": 200_000_000}, "sandbox": "limits", "timeout_s": 60},
        "memory_limit",
    ),
}


def test_nothing_of_a_fresh_calls_memory_is_found_by_the_next(backend):
    """CL-74"""
    assert [backend.execute(ft.Call(source=COUNT, function="f")).value for _ in range(4)] == [1] * 4


def test_nothing_of_a_calls_directory_is_found_by_the_next(backend):
    """CL-74"""
    source = "import os\ndef f():\n    open('left', 'w').close()\n    return sorted(os.listdir('.'))"
    assert [backend.execute(ft.Call(source=source, function="f")).value for _ in range(3)] == [["left"]] * 3


def test_nothing_of_a_calls_environment_is_found_by_the_next(backend):
    """CL-74"""
    source = "import os\ndef f(): return os.environ.get('OF_ONE_CALL')"
    values = [
        backend.execute(ft.Call(source=source, function="f", env=env)).value for env in ({"OF_ONE_CALL": "x"}, {})
    ]
    assert values == ["x", None]


def test_no_call_finds_the_hosts_secrets(backend, monkeypatch):
    """CL-43, CL-74"""
    monkeypatch.setenv("A_TOKEN_OF_THE_HOST", "canary")
    source = "import os\ndef f(): return [name for name in os.environ if 'TOKEN' in name or name.startswith('RAY_')]"
    for level in ("none", "limits"):
        assert backend.execute(ft.Call(source=source, function="f", sandbox=level)).value == []


@pytest.mark.parametrize("kind", HARM)
def test_a_call_beside_one_that_does_harm_is_unharmed(backend, gates, kind):
    """CL-74"""
    source, terms, verdict = HARM[kind]
    gate = gates()
    sibling = backend.submit(ft.Call(source=Gate.SOURCE, function="f", args=[gate.place, 42]))
    gate.wait_begun()
    assert backend.execute(ft.Call(source=source, function="f", **terms)).verdict == verdict
    gate.open()
    outcome = sibling.outcome(60)
    assert (outcome.verdict, outcome.value) == ("ok", 42)


def test_each_fresh_call_has_a_process_of_its_own(backend):
    """CL-74"""
    source = "import os\ndef f(): return os.getpid()"
    pids = [backend.execute(ft.Call(source=source, function="f")).value for _ in range(4)]
    assert len(set(pids)) == 4 and os.getpid() not in pids
