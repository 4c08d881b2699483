"""Ctrl-C at a terminal: PY-49 and what of PY-50 is about it."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import textwrap
import time

import pytest
from support import WAIT_S, Gate, environment, is_gone, wait_until


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, directory, text, *args):
        script = directory / "program.py"
        script.write_text(textwrap.dedent(text))
        self.master, slave = pty.openpty()
        self.errors = open(directory / "stderr", "w+")
        self.process = subprocess.Popen(
            [sys.executable, str(script), *args],
            env=environment(),
            cwd=directory,
            stdin=slave,
            stdout=slave,
            stderr=self.errors,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        self.read = ""

    def press_ctrl_c(self):
        os.write(self.master, b"\x03")

    def wait_for(self, text):
        deadline = time.monotonic() + WAIT_S
        while text not in self.read:
            assert time.monotonic() < deadline, f"{text!r} did not appear in {self.read!r}"
            try:
                self.read += os.read(self.master, 4096).decode()
            except OSError:  # its other end is closed
                assert text in self.read, f"{text!r} not in {self.read!r}: {self.close()}"
        return self.read

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.errors.seek(0)
        errors = self.errors.read()
        self.errors.close()
        os.close(self.master)
        return errors


def _take_terminal():
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


INTERRUPTED = """
import os, sys, time, threading
import fairtrial as ft, work
from support import Gate, descendants

gate = Gate(sys.argv[1])
executor = ft.Executor(2)
source = "import sys\\nsys.path.insert(0, %r)\\nfrom work import notice_interrupt as f" % os.path.dirname(work.__file__)
call = ft.Call(source=source, function="f", args=[gate.path])

def tell():
    gate.wait_begun()
    print("ready", flush=True)

threading.Thread(target=tell, daemon=True).start()
how = sys.argv[2]
try:
    if how == "run":
        ft.run(call)
    elif how == "result":
        executor.submit(work.notice_interrupt, gate.path).result()
    elif how == "shutdown":
        executor.submit(work.notice_interrupt, gate.path)
        executor.shutdown()
    elif how == "map":
        list(executor.map(work.notice_interrupt, [gate.path]))
    elif how == "with":
        with executor:
            executor.submit(work.notice_interrupt, gate.path).result()
    elif how == "leaving with":
        with executor:
            executor.submit(work.notice_interrupt, gate.path)
except KeyboardInterrupt:
    print("interrupted", flush=True)
if how in ("result", "map", "shutdown"):
    executor.shutdown(cancel_futures=True, kill_after=0)
if how == "run":
    ft.shutdown()
print("left", len(descendants()), flush=True)
"""


@pytest.mark.parametrize("how", ["run", "result", "map", "shutdown", "with", "leaving with"])
def test_ctrl_c_interrupts_every_wait(tmp_path, how):
    """PY-49: within 200 ms where nothing else runs; five times that is allowed here"""
    gate = Gate(tmp_path / "gate")
    terminal = Terminal(tmp_path, INTERRUPTED, gate.path, how)
    try:
        terminal.wait_for("ready")
        pid = gate.wait_begun()
        pressed = time.monotonic()
        terminal.press_ctrl_c()
        terminal.wait_for("interrupted")
        took = time.monotonic() - pressed
        terminal.wait_for("left 0")
        assert terminal.process.wait(WAIT_S) == 0
        wait_until(lambda: is_gone(pid))
    finally:
        errors = terminal.close()
    assert errors == ""
    assert took < 1.0
    assert not os.path.exists(gate.path + ".interrupt"), "workers never receive the terminal's SIGINT"


def test_an_interrupt_that_is_not_caught_ends_the_program(tmp_path):
    """PY-49, PY-50"""
    gate = Gate(tmp_path / "gate")
    terminal = Terminal(
        tmp_path,
        """
        import sys, fairtrial as ft, work
        with ft.Executor(1) as executor:
            future = executor.submit(work.pass_gate, sys.argv[1])
            executor.submit(work.sleep)
            print("ready", flush=True)
            future.result()
        """,
        gate.path,
    )
    try:
        terminal.wait_for("ready")
        pid = gate.wait_begun()
        terminal.press_ctrl_c()
        assert terminal.process.wait(WAIT_S) == -signal.SIGINT
        wait_until(lambda: is_gone(pid))
    finally:
        errors = terminal.close()
    assert "KeyboardInterrupt" in errors


def test_an_interrupt_that_is_caught_costs_no_call(tmp_path):
    """PY-49: the terminal's signal reaches the host alone, and the host goes on"""
    gate = Gate(tmp_path / "gate")
    terminal = Terminal(
        tmp_path,
        """
        import sys, fairtrial as ft, work
        executor = ft.Executor(1)
        future = executor.submit(work.notice_interrupt, sys.argv[1])
        print("ready", flush=True)
        try:
            future.result()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        print("value", future.result(), flush=True)
        """,
        gate.path,
    )
    try:
        terminal.wait_for("ready")
        gate.wait_begun()
        terminal.press_ctrl_c()
        terminal.wait_for("interrupted")
        gate.open()
        terminal.wait_for("value None")
        assert terminal.process.wait(WAIT_S) == 0
    finally:
        errors = terminal.close()
    assert errors == ""


def test_ctrl_c_while_the_end_waits_kills(tmp_path):
    """PY-50"""
    gate = Gate(tmp_path / "gate")
    terminal = Terminal(
        tmp_path,
        """
        import sys, fairtrial as ft, work
        executor = ft.Executor(1)
        executor.submit(work.pass_gate, sys.argv[1])
        print("ending", flush=True)
        """,
        gate.path,
    )
    try:
        terminal.wait_for("ending")
        pid = gate.wait_begun()
        wait_until(lambda: len(os.listdir(f"/proc/{terminal.process.pid}/task")) > 1)
        terminal.press_ctrl_c()
        terminal.process.wait(WAIT_S)
        wait_until(lambda: is_gone(pid))
    finally:
        terminal.close()
