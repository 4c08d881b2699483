"""A `KeyboardInterrupt` that a call raises is the call's own, and no Ctrl-C (PY-12, PY-49)."""

import pytest
import work
from support import WAIT_S

import fairtrial as ft


def interrupt():
    raise KeyboardInterrupt("of the call's own making")


def test_a_call_that_raises_keyboard_interrupt_costs_its_siblings_nothing(gate):
    """PY-12"""
    with pytest.raises(KeyboardInterrupt, match="of the call's own making"):
        with ft.Executor(2) as executor:
            sibling = executor.submit(work.pass_gate, gate.path)
            queued = [executor.submit(work.same, n) for n in range(3)]
            gate.wait_begun()
            future = executor.submit(interrupt)
            future.add_done_callback(lambda _: gate.open())
            future.result(WAIT_S)
    assert sibling.outcome().verdict == "ok" and [f.result() for f in queued] == [0, 1, 2]


def test_a_call_that_ends_the_program_with_keyboard_interrupt_costs_its_siblings_nothing(program, tmp_path):
    """PY-50"""
    done = program(
        """
        import os, sys, time
        import fairtrial as ft
        def interrupt():
            raise KeyboardInterrupt
        def write_later():
            while not os.path.exists("ending"):
                time.sleep(0.002)
            open("written", "w").close()
        executor = ft.Executor(2)
        sibling = executor.submit(write_later)
        while not sibling.running():
            time.sleep(0.002)
        sys.excepthook = lambda *_: open("ending", "w").close()
        executor.submit(interrupt).result()
        """
    )
    assert done.returncode != 0
    assert (tmp_path / "written").exists(), done.stderr


def test_ctrl_c_still_kills_what_a_with_block_has_running():
    """PY-49"""
    with pytest.raises(KeyboardInterrupt):
        with ft.Executor(1) as executor:
            future = executor.submit(work.sleep, 60)
            raise KeyboardInterrupt
    assert future.outcome().verdict == "cancelled"
