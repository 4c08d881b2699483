"""Section 5 of the package's requirements: run, backends, hooks."""

import dataclasses
import os
import subprocess
import sys
import threading
import time

import pytest
from support import WAIT_S, descendants, is_gone, wait_until

import fairtrial as ft

DOUBLE = "def f(x=1): return x * 2"
PID = "import os\ndef f(): return os.getpid()"


def double(x=1, **terms):
    return ft.Call(source=DOUBLE, function="f", args=[x], **terms)


VERDICTS = {
    "ok": "def f(): return 1",
    "exception": "def f(): 1 / 0",
    "signal": "import os\ndef f(): os.abort()",
    "exit": "import os\ndef f(): os._exit(3)",
    "no_result": "import os\ndef f(): os._exit(0)",
    "timeout": "def f():\n    while True: pass",
    "output_limit": "def f(): print('x' * 100000)",
    "bad_result": "def f(): return object()",
    "setup_failed": "def f(): pass",
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_run_returns_an_outcome_for_every_verdict(verdict):
    """PY-40"""
    terms = {
        "timeout": {"timeout_s": 0.2},
        "output_limit": {"limits": ft.Limits(output="1K")},
        "setup_failed": {"cwd": "/nowhere"},
    }.get(verdict, {})
    outcome = ft.run(ft.Call(source=VERDICTS[verdict], function="f", **terms))
    assert outcome.verdict == verdict
    assert (outcome.error is None) == (verdict == "ok")


def test_the_default_backend_is_made_when_needed_and_made_again():
    """PY-40"""
    before = descendants()
    ft.shutdown()
    assert ft.run(double(4)).value == 8
    first = set(descendants()) - set(before)
    assert first
    ft.run(double(4))
    ft.shutdown()
    ft.shutdown()
    wait_until(lambda: not first & set(descendants()), what="the end of the default backend")
    assert ft.run(double(5)).value == 10


def test_run_raises_only_engine_errors(tmp_path):
    """PY-40, PY-2: the launcher is inside the library; another may be named"""
    missing = str(tmp_path / "launcher")
    with ft.LocalBackend(launcher=missing) as backend:
        with pytest.raises(ft.EngineError) as caught:
            ft.run(double(), backend)
    assert isinstance(caught.value, RuntimeError) and missing in str(caught.value)


def test_run_uses_the_backend_it_is_given():
    """PY-40"""
    with ft.LocalBackend(1, node_id="somewhere") as backend:
        assert ft.run(double(), backend).metrics.node_id == "somewhere"


def test_a_backend_that_is_shut_down_takes_no_calls():
    """PY-40"""
    backend = ft.LocalBackend(1)
    backend.shutdown()
    with pytest.raises(ft.EngineError, match="shut down"):
        backend.execute(double())


def test_run_code_gives_the_value():
    """PY-41"""
    assert ft.run_code("def add(a, b): return a + b", "add", 1, 2, timeout=WAIT_S) == 3
    assert ft.run_code("def f(**k): return k", "f", kwargs={"x": 1}, env={"A": "b"}) == {"x": 1}


def test_run_code_refuses_unknown_options():
    """PY-41"""
    with pytest.raises(TypeError, match="timeuot"):
        ft.run_code("def f(): pass", "f", timeuot=3)


def test_run_code_uses_a_backend():
    """PY-41"""
    with ft.LocalBackend(1) as backend:
        assert ft.run_code(PID, "f", backend=backend) != os.getpid()


def test_any_object_with_execute_and_shutdown_is_a_backend():
    """PY-42"""

    class Mine:
        def execute(self, call):
            return ("ran", call)

        def shutdown(self):
            pass

    class NotOne:
        def execute(self, call):
            pass

    assert isinstance(Mine(), ft.Backend) and not isinstance(NotOne(), ft.Backend)
    assert not isinstance(Mine(), ft.Hooks)
    assert isinstance(ft.LocalBackend(), ft.Backend) and isinstance(ft.LocalBackend(), ft.Hooks)
    assert ft.run("a call", Mine()) == ("ran", "a call")


def reuse_pid(backend):
    return backend.execute(ft.Call(source=PID, function="f", isolation="reuse")).value


def test_workers_are_replaced_after_so_many_calls():
    """PY-42"""
    with ft.LocalBackend(1, max_calls=2) as backend:
        pids = [reuse_pid(backend) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_workers_are_replaced_after_an_error():
    """PY-42"""
    with ft.LocalBackend(1, after_error=True) as backend:
        first = reuse_pid(backend)
        assert reuse_pid(backend) == first
        backend.execute(ft.Call(source="def f(): 1/0", function="f", isolation="reuse"))
        assert reuse_pid(backend) != first


def test_workers_are_replaced_when_old():
    """PY-42"""
    with ft.LocalBackend(1, max_age=0.001) as backend:
        assert len({reuse_pid(backend) for _ in range(3)}) == 3


def test_workers_are_replaced_when_they_have_grown():
    """PY-42"""
    grow = ft.Call(source="def f():\n    import sys\n    sys.kept = b'x' * 50_000_000", function="f", isolation="reuse")
    with ft.LocalBackend(1, rss_growth="20M") as backend:
        first = reuse_pid(backend)
        assert reuse_pid(backend) == first
        assert backend.execute(grow).ok
        assert reuse_pid(backend) != first


def test_idle_workers_end():
    """PY-42"""
    with ft.LocalBackend(1, idle_timeout=0.2) as backend:
        pid = reuse_pid(backend)
        wait_until(lambda: is_gone(pid), what="the end of an idle worker")
        assert reuse_pid(backend) != pid


def test_more_of_the_environment_is_passed_on_if_allowed(monkeypatch):
    """PY-42"""
    monkeypatch.setenv("FT_TEST_ONE", "1")
    monkeypatch.setenv("FT_OTHER", "2")
    source = "import os\ndef f(): return sorted(name for name in os.environ if name.startswith('FT_'))"
    call = ft.Call(source=source, function="f")
    for options, expected in (
        ({}, []),
        ({"env_allow": ["FT_OTHER"]}, ["FT_OTHER"]),
        ({"env_prefixes": ["FT_"]}, ["FT_OTHER", "FT_TEST_ONE"]),
    ):
        with ft.LocalBackend(1, **options) as backend:
            assert backend.execute(call).value == expected


def test_large_values_go_to_the_spill_directory(tmp_path):
    """PY-42"""
    spill = tmp_path / "spill"
    call = ft.Call(source="def f(): return bytes(5_000_000)", function="f")
    with ft.LocalBackend(1, spill_dir=str(spill), memfd_cap="1M") as backend:
        assert backend.execute(call).value == bytes(5_000_000)
        assert spill.is_dir()
    assert list(spill.iterdir()) == []


def test_capture_is_bounded():
    """PY-42"""
    outcome = ft.run(ft.Call(source="def f(): print('x' * 5000)", function="f", capture_bytes="1K"))
    assert outcome.dropped["stdout"] == 5001 - 1024


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_workers": 0}, ValueError, "max_workers must be greater than 0"),
        ({"idle_timeout": -1}, ValueError, "idle_timeout"),
        ({"max_calls": 0}, ValueError, "max_calls"),
        ({"memfd_cap": "1X"}, ValueError, "memfd_cap"),
        ({"max_call": 3}, TypeError, "did you mean 'max_calls'"),
    ],
)
def test_bad_options_are_refused_at_once(options, error, words):
    """PY-42, PY-8"""
    with pytest.raises(error, match=words):
        ft.LocalBackend(**options)


def test_leaving_with_waits_for_calls(gate):
    """PY-42"""
    with ft.LocalBackend(1) as backend:
        future = backend.submit(double(3))
    assert future.outcome(0).value == 6


# -- PY-43: hooks


def watch(backend):
    """All events of a backend, in order."""
    events = []
    for name in ("submit", "start", "complete", "worker_start", "worker_exit", "shutdown"):
        getattr(backend, f"on_{name}")(events.append)
    return events


def test_hooks_are_told_of_a_calls_life():
    """PY-43"""
    with ft.LocalBackend(1) as backend:
        events = watch(backend)
        backend.execute(double())
    names = [event.name for event in events]
    for name in ("submit", "start", "complete", "shutdown"):
        assert names.count(name) == 1, names
    assert names.index("submit") < names.index("start") < names.index("complete") < names.index("shutdown")
    by_name = {event.name: event for event in events}
    assert by_name["submit"].call_id == by_name["start"].call_id == by_name["complete"].call_id
    assert by_name["complete"].verdict == "ok"
    assert by_name["worker_start"].pid and by_name["worker_exit"].reason


def test_hooks_hear_of_descriptors_that_preloads_hold(tmp_path):
    """FA-2"""
    (tmp_path / "holder.py").write_text("import os\nos.dup2(os.open('/etc/passwd', os.O_RDONLY), 400)\n")
    terms = {"preload": ["holder"], "env": {"PYTHONPATH": str(tmp_path)}}
    with ft.LocalBackend(max_workers=1) as backend:
        seen = []
        backend.on_worker_start(seen.append)
        backend.execute(double(**terms))
        wait_until(lambda: seen)
    assert seen[0].closed_fds[400] == "/etc/passwd (preload `holder`)"
    assert len({*seen}) == len(seen), "events can be hashed"


def test_events_are_frozen():
    """PY-43"""
    event = ft.Event("submit", call_id=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.name = "other"
    assert event == ft.Event("submit", call_id=1)


def test_each_submit_has_one_complete_on_every_path(gate):
    """PY-43, EX-92"""
    with ft.LocalBackend(2) as backend:
        events = watch(backend)
        for verdict in ("ok", "exception", "signal", "exit", "bad_result"):
            backend.execute(ft.Call(source=VERDICTS[verdict], function="f"))
        backend.execute(ft.Call(source=VERDICTS["timeout"], function="f", timeout_s=0.2))
        backend.submit(ft.Call(argv=["sleep", "3600"])).cancel()
        with pytest.raises(ValueError):
            backend.execute(ft.Call(source=DOUBLE, function="f", args=[object()]))
    submitted = [event.call_id for event in events if event.name == "submit"]
    completed = [event.call_id for event in events if event.name == "complete"]
    assert len(submitted) == 7 and sorted(submitted) == sorted(completed)


def test_shutdown_is_told_once_even_if_nothing_ran():
    """PY-43, EX-92"""
    backend = ft.LocalBackend(1)
    told = []
    backend.on_shutdown(told.append)
    backend.shutdown()
    backend.shutdown()
    assert [event.name for event in told] == ["shutdown"]


def test_hooks_run_in_order_and_can_be_unsubscribed():
    """PY-43, EX-93"""
    told = []
    with ft.LocalBackend(1) as backend:
        backend.on_complete(lambda event: told.append("first"))
        unsubscribe = backend.on_complete(lambda event: told.append("second"))
        backend.on_complete(lambda event: told.append("third"))
        backend.execute(double())
        wait_until(lambda: len(told) == 3)
        assert told == ["first", "second", "third"]
        unsubscribe()
        unsubscribe()
        backend.execute(double())
        wait_until(lambda: len(told) == 5)
    assert told[3:] == ["first", "third"]


def test_a_hook_that_fails_or_blocks_delays_no_call(caplog):
    """PY-43, EX-93"""
    free, told = threading.Event(), []
    try:
        with ft.LocalBackend(1) as backend:

            def fail(event):
                raise SystemExit("a hook's own trouble")

            backend.on_submit(fail)
            backend.on_submit(lambda event: free.wait(WAIT_S))
            backend.on_submit(told.append)
            for x in range(3):
                assert backend.execute(double(x)).value == 2 * x
            free.set()
    finally:
        free.set()
    assert len(told) == 3
    assert "a hook on submit failed" in caplog.text


def test_a_hook_may_call_the_backend():
    """PY-43"""
    values = []
    with ft.LocalBackend(2) as backend:

        def again(event):
            if not values:
                values.append(None)
                values.append(backend.execute(double(21)).value)

        backend.on_complete(again)
        backend.execute(double())
        wait_until(lambda: len(values) == 2)
    assert values == [None, 42]


def test_queue_timeout_is_counted_apart():
    """PY-40, EX-46"""
    with ft.LocalBackend(1) as backend:
        running = backend.submit(ft.Call(argv=["sleep", "3600"]))
        wait_until(running.running)
        began = time.monotonic()
        outcome = backend.execute(double(queue_timeout_s=0.1))
        assert (outcome.verdict, outcome.error.type) == ("cancelled", "QueueTimeout")
        assert time.monotonic() - began < WAIT_S
        running.cancel()


def test_the_sandbox_report_says_what_holds_and_what_was_tried(tmp_path, monkeypatch):
    """SB-42, SB-43"""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ft.LocalBackend(max_workers=1) as backend:
        report = backend.sandbox_report()
        assert report["requested"] == "limits"
        assert report["selftest"]["read_environ"] in ("denied", "allowed")
        assert report["mechanisms"]["clean_env"] == {"state": "enforced", "via": "allow-list"}
        assert report["digest"].startswith("sha256:")
        assert (tmp_path / "fairtrial" / "selftest.json").exists()
        assert backend.sandbox_report("limits") == report
        assert backend.sandbox_report("none")["selftest"] == {}
        with pytest.raises(ValueError, match="unknown level `jail`"):
            backend.sandbox_report("jail")
        with pytest.raises(TypeError, match="level must be a str"):
            backend.sandbox_report(None)


def test_a_kill_from_outside_and_counters_are_told():
    """SB-31, SB-33"""
    outcome = ft.run(ft.Call(argv=["sh", "-c", "kill -9 $$"]))
    assert (outcome.verdict, outcome.exit.signal, outcome.exit.killed_by) == ("signal", 9, "outside")
    outcome = ft.run(double())
    assert outcome.in_force["counters"]["minor_faults"] > 0
    assert all(entry["state"] != "enforced" for entry in outcome.in_force["mechanisms"].values())


DEGRADED = """
import fairtrial as ft
told = []
with ft.LocalBackend(max_workers=1) as backend:
    backend.on_degraded(lambda event: told.append((event.level, event.mechanism, event.reason)))
    for _ in range(2):
        call = ft.Call(argv=["true"], sandbox={"level": "strict", "on_missing": "degrade"})
        print(backend.execute(call).in_force["effective"])
print([reason for level, mechanism, reason in told if (level, mechanism) == ("strict", "userns")])
"""


def test_a_hook_is_told_once_of_what_calls_do_without():
    """SB-45"""
    off = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    under = ["unshare", "--user", "--map-root-user", "sh", "-c", off, "sh"]
    if subprocess.run([*under, "true"], capture_output=True).returncode != 0:
        pytest.skip("user namespaces cannot be made here, so they cannot be switched off")
    run = subprocess.run([*under, sys.executable, "-c", DEGRADED], capture_output=True, text=True, timeout=WAIT_S)
    reason = "cannot be set up ENOSPC; user.max_user_namespaces=0"
    assert run.stdout == f"confined\nconfined\n['{reason}']\n", run.stderr
