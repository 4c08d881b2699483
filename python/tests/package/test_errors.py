"""The table of section 5 and PY-44: what a failed call raises."""

import concurrent.futures
import copy
import pickle
import threading
from concurrent.futures.process import BrokenProcessPool

import pytest
import work
from support import WAIT_S, wait_until

import fairtrial as ft

SPIN = "def f():\n    while True: pass"
ERRORS = ["TimedOut", "LimitExceeded", "MemoryExceeded", "WorkerDied", "SetupError", "ResultError", "Cancelled"]

# verdict, source, terms, what is raised, and what else that is
TABLE = [
    ("timeout", SPIN, {"timeout": 0.2}, ft.TimedOut, TimeoutError),
    ("cpu_limit", SPIN, {"limits": ft.Limits(cpu=1)}, ft.TimedOut, TimeoutError),
    (
        "memory_limit",
        "def f(): return len(b'x' * 400_000_000)",
        {"limits": ft.Limits(memory="100M")},
        ft.MemoryExceeded,
        (ft.LimitExceeded, MemoryError),
    ),
    ("output_limit", "def f(): print('x' * 99999)", {"limits": ft.Limits(output="1K")}, ft.LimitExceeded, ()),
    (
        "disk_limit",
        "def f():\n    with open('big', 'wb') as file: file.write(bytes(2_000_000))",
        {"limits": ft.Limits(file_size="1M")},
        ft.LimitExceeded,
        (),
    ),
    ("signal", "import os\ndef f(): os.abort()", {}, ft.WorkerDied, BrokenProcessPool),
    ("exit", "import os\ndef f(): os._exit(3)", {}, ft.WorkerDied, BrokenProcessPool),
    ("no_result", "import os\ndef f(): os._exit(0)", {}, ft.WorkerDied, BrokenProcessPool),
    ("setup_failed", "def f(): pass", {"cwd": "/nowhere"}, ft.SetupError, BrokenProcessPool),
    ("bad_result", "def f(): return object()", {}, ft.ResultError, BrokenProcessPool),
    ("exception", "def f(): return {}['x']", {}, ft.CandidateError, ()),
]


@pytest.mark.parametrize(("verdict", "source", "terms", "error", "kin"), TABLE, ids=[row[0] for row in TABLE])
def test_a_verdict_raises_its_error(verdict, source, terms, error, kin):
    """PY-41, PY-44: the table"""
    with pytest.raises(ft.CandidateError) as caught:
        ft.run_code(source, "f", **terms)
    assert type(caught.value) is error
    for other in kin if isinstance(kin, tuple) else (kin,):
        assert isinstance(caught.value, other)
    assert caught.value.outcome.verdict == verdict
    assert str(caught.value).startswith(verdict)


@pytest.mark.parametrize("verdict", ["process_limit", "forbidden"])
def test_verdicts_of_the_stricter_levels_are_limits(verdict):
    """PY-41: the table's rows that need a sandbox; the mapping itself is looked at"""
    from fairtrial.errors import _BY_VERDICT

    assert _BY_VERDICT[verdict] is ft.LimitExceeded


def test_every_verdict_has_an_error():
    """PY-41: the table is complete"""
    from fairtrial.errors import _BY_VERDICT

    verdicts = """setup_failed cancelled timeout cpu_limit memory_limit output_limit disk_limit process_limit forbidden
        signal exit exception bad_result no_result""".split()
    assert sorted(_BY_VERDICT) == sorted(verdicts)


def test_a_cancelled_call_raises_cancelled(one, gate):
    """PY-41: the table"""
    future = one.submit(work.pass_gate, gate.path)
    gate.wait_begun()
    future.cancel()
    with pytest.raises(ft.Cancelled) as caught:
        future.result(WAIT_S)
    assert isinstance(caught.value, concurrent.futures.CancelledError)
    assert isinstance(caught.value, ft.CandidateError)


def test_a_call_that_waited_too_long_raises_queue_timed_out():
    """PY-41: the table"""
    with ft.LocalBackend(1) as backend:
        running = backend.submit(ft.Call(argv=["sleep", "3600"]))
        wait_until(running.running)
        with pytest.raises(ft.QueueTimedOut) as caught:
            ft.run_code("def f(): pass", "f", queue_timeout_s=0.1, backend=backend)
        running.cancel()
    assert isinstance(caught.value, TimeoutError) and isinstance(caught.value, ft.CandidateError)
    assert caught.value.outcome.verdict == "cancelled"


def test_the_engines_own_failure_is_no_candidates():
    """PY-44"""
    assert issubclass(ft.EngineError, RuntimeError) and not issubclass(ft.EngineError, ft.CandidateError)
    for name in [*ERRORS, "QueueTimedOut"]:
        assert issubclass(getattr(ft, name), ft.CandidateError)


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("verdict", ["timeout", "signal", "exception", "setup_failed", "bad_result", "output_limit"])
def test_errors_pickle_and_copy(make, verdict):
    """PY-44"""
    _, source, terms, cls, _ = next(row for row in TABLE if row[0] == verdict)
    with pytest.raises(cls) as caught:
        ft.run_code(source, "f", **terms)
    again = make(caught.value)
    assert type(again) is cls and str(again) == str(caught.value)
    assert again.outcome.verdict == verdict
    assert again.outcome.error == caught.value.outcome.error
    assert again.outcome.metrics == caught.value.outcome.metrics


def test_the_text_of_an_error_ends_with_the_whole_traceback():
    """PY-44"""
    source = "def f(): return g()\ndef g(): return h()\ndef h(): raise KeyError('deep' * 200)"
    with pytest.raises(ft.CandidateError) as caught:
        ft.run_code(source, "f")
    text = str(caught.value)
    assert text.endswith(caught.value.outcome.error.traceback.rstrip())
    for name in ("in f", "in g", "in h", "deep" * 200):
        assert name in text


def test_a_hung_call_says_where_it_hung():
    """PY-44"""
    with pytest.raises(ft.TimedOut) as caught:
        ft.run_code("def f():\n    return inner()\ndef inner():\n    while True: pass", "f", timeout=0.3)
    assert "inner" in str(caught.value)


def test_an_executors_errors_are_those_of_its_functions(one):
    """PY-41: the table's row for executors"""
    with pytest.raises(ZeroDivisionError):
        one.submit(divmod, 1, 0).result(WAIT_S)
    with pytest.raises(ft.TimedOut):
        one.options(timeout=0.1).submit(work.sleep).result(WAIT_S)
    with pytest.raises(TypeError, match="pickle"):
        one.submit(work.make, threading.Lock).result(WAIT_S)


def test_errors_can_be_made_by_hand():
    """PY-44"""
    error = ft.TimedOut("too late")
    assert (str(error), error.outcome) == ("too late", None)
    assert str(pickle.loads(pickle.dumps(error))) == "too late"


def test_all_errors_are_at_home_in_one_place():
    """PY-44: as a traceback names it, it can be imported."""
    assert ft.EngineError.__module__ == ft.TimedOut.__module__ == "fairtrial.errors"
    again = pickle.loads(pickle.dumps(ft.EngineError("no")))
    assert (type(again), str(again)) == (ft.EngineError, "no")
