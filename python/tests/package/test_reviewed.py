"""What a review found: small things that went wrong at the edges."""

import concurrent.futures
import gc
import os
import threading
import time

import pytest
import work
from support import WAIT_S

import fairtrial as ft


def test_a_stream_without_flush_does_not_hold_workers_up(program):
    """PY-32"""
    done = program(
        """
        import sys, fairtrial as ft
        class Sink:
            def write(self, text): raise RuntimeError("no")
        real, sys.stdout = sys.stdout, Sink()
        with ft.Executor(1, timeout=30) as executor:
            verdicts = [executor.submit(print, "x" * 70_000).outcome().verdict for _ in range(30)]
        sys.stdout = real
        print(set(verdicts))
        """
    )
    assert done.stdout == "{'ok'}\n", done.stderr


def test_output_does_not_go_to_whoever_has_a_closed_streams_number(program, tmp_path):
    """PY-52"""
    done = program(
        f"""
        import os, subprocess, sys
        text = '''
        import fairtrial as ft
        file = open({str(tmp_path / "mine")!r}, "w")
        assert file.fileno() == 1, file.fileno()
        with ft.Executor(1) as executor:
            executor.submit(print, "not for you").result()
        '''
        import textwrap
        subprocess.run([sys.executable, "-c", textwrap.dedent(text)], preexec_fn=lambda: os.close(1), check=True)
        """
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine").read_text() == ""


@pytest.mark.parametrize("function", [work.fail, work.nothing], ids=lambda function: function.__name__)
def test_what_was_cancelled_is_cancelled_however_it_ended(one, function):
    """PY-35"""
    for _ in range(60):
        future = one.submit(function)
        if future.cancel():
            assert future.cancelled()
            with pytest.raises(concurrent.futures.CancelledError):
                future.result(WAIT_S)
            with pytest.raises(concurrent.futures.CancelledError):
                future.exception(WAIT_S)


def test_asyncio_in_a_callback_does_not_wait_for_itself(one):
    """PY-28, PY-37"""
    import asyncio

    call = ft.Call(source="def f(): return 1", function="f")
    values, over = [], threading.Event()

    def callback(_):
        values.append(asyncio.run(ft.arun(call)).value)
        over.set()

    one.submit(work.nothing).add_done_callback(callback)
    assert over.wait(WAIT_S) and values == [1]
    ft.shutdown()


def test_a_stuck_callback_of_one_executor_does_not_hold_up_the_end_of_another(one):
    """PY-28"""
    entered, released = threading.Event(), threading.Event()
    one.submit(work.nothing).add_done_callback(lambda _: (entered.set(), released.wait(WAIT_S)))
    assert entered.wait(WAIT_S)
    with ft.Executor(1) as other:
        assert other.submit(work.square, 3).result(WAIT_S) == 9
    released.set()


def test_arguments_that_do_not_pickle_have_an_outcome(one):
    """PY-36"""
    outcome = one.submit(work.square, threading.Lock()).outcome(WAIT_S)
    assert (outcome.verdict, outcome.error.type, outcome.value) == ("setup_failed", "TypeError", None)


def test_endless_times_are_endless(one):
    """PY-26"""
    assert one.submit(work.square, 2).result(float("inf")) == 4
    with pytest.raises(ValueError, match="kill_after"):
        one.shutdown(kill_after=-1)
    one.shutdown(kill_after=float("inf"))


def test_a_backend_that_is_dropped_goes():
    """PY-42"""

    def threads():
        return len(os.listdir("/proc/self/task"))  # the engine's are not Python's

    before = threads()
    for _ in range(3):
        backend = ft.LocalBackend(1)
        backend.execute(ft.Call(argv=["true"]))
        del backend
    gc.collect()
    give_up = time.monotonic() + WAIT_S
    while threads() > before and time.monotonic() < give_up:
        time.sleep(0.005)
    assert threads() <= before


def test_a_map_that_runs_out_of_time_cancels_the_call_it_waited_for(one, gate):
    """PY-20"""
    held = one.submit(work.pass_gate, gate.path)
    gate.wait_begun()
    results = one.map(work.square, [1, 2], timeout=0.05)
    futures = list(results._futures)
    with pytest.raises(concurrent.futures.TimeoutError):
        next(results)
    assert [future.cancelled() for future in futures] == [True, True]
    gate.open()
    held.result(WAIT_S)


def test_what_is_wrong_with_a_call_is_said_when_it_is_made():
    """PY-8, PY-40"""
    with pytest.raises(ValueError, match="plain data"):
        ft.Call(source="def f(x): pass", function="f", args=[object()])


def test_unknown_keywords_are_named_as_users_write_them(one):
    """PY-8"""
    with pytest.raises(TypeError, match=r"Executor\(\).*'timeot'.*'timeout'"):
        ft.Executor(timeot=1)
    with pytest.raises(TypeError, match=r"Executor.options\(\).*'python'"):
        one.options(python="python3")
