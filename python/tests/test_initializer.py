"""Initializers of executors."""

import logging
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool

import pytest

import fairtrial as ft


def ready():
    """The initializer: leaves a mark where the calls find it."""
    logging.mark = "initialized"


def mark():
    return getattr(logging, "mark", None)


def fail():
    raise ValueError("no good")


def test_an_initializer_runs_before_the_first_call_of_each_worker():
    """PY-24"""
    with ft.Executor(2, initializer=ready) as executor:
        assert [future.result() for future in [executor.submit(mark) for _ in range(4)]] == ["initialized"] * 4


def test_a_failed_initializer_is_logged_and_breaks_the_executor(caplog):
    """PY-24"""
    with caplog.at_level(logging.CRITICAL, "concurrent.futures"), ft.Executor(1, initializer=fail) as executor:
        futures = [executor.submit(mark) for _ in range(5)]
        for future in futures:
            with pytest.raises(BrokenProcessPool):
                future.result(30)
        with pytest.raises(BrokenProcessPool):
            executor.submit(mark)
    assert "ValueError: no good" in caplog.text


def test_an_exception_of_a_call_is_no_failure_of_the_initializer():
    """PY-24"""
    with ft.Executor(1, initializer=ready) as executor:
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()
        assert executor.submit(mark).result() == "initialized"


def test_a_running_call_of_an_executor_with_an_initializer_can_be_cancelled():
    """PY-24, PY-35"""
    import time

    with ft.Executor(1, initializer=ready) as executor:
        future = executor.submit(time.sleep, 60)
        while not future.running():
            time.sleep(0.01)
        assert future.cancel()
        with pytest.raises(ft.Cancelled):
            future.result()
        assert executor.submit(mark).result() == "initialized"


def test_what_an_initializer_sets_in_main_is_what_functions_of_main_find(tmp_path):
    """PY-24, PY-30: also a name that the host's `__main__` has, with another value."""
    script = tmp_path / "script.py"
    script.write_text(
        "import fairtrial as ft\n"
        "state, other = None, 1\n"
        "def init(x):\n    global state\n    state = x\n"
        "def get(): return state, other\n"
        "def change():\n    global state\n    state = 'changed'\n    return state\n"
        "with ft.Executor(1, initializer=init, initargs=(7,)) as executor:\n"
        "    print(executor.submit(get).result(), executor.submit(change).result(), executor.submit(get).result())\n"
        "    other = 2\n"
        "    print(executor.submit(get).result())\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["(7, 1) changed (7, 1)", "(7, 2)"], done.stderr
