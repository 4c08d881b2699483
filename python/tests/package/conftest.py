"""Fixtures of the package's tests; the first of them checks that each test leaves nothing behind."""

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

if str(Path(__file__).parent) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parent))

# Most tests are about calls, not about what a level forbids them besides: files of theirs are in the way of it.
os.environ.setdefault("FAIRTRIAL_SANDBOX", "none")

# In the background of a shell these are ignored, and so by all programs that are started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

from evaluated import Project  # noqa: E402
from support import WAIT_S, Gate, environment, nothing_left  # noqa: E402

import fairtrial as ft  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36


def pytest_report_header():
    return f"fairtrial {ft.__version__} from {Path(ft.__file__).parent}"


@pytest.fixture(scope="session", autouse=True)
def adopt_orphans():
    """Whatever a program under test leaves behind becomes a child of this process, and is seen."""
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    # The two threads that bring callbacks live as long as the process, and so do those of numpy's libraries.
    with contextlib.suppress(ImportError):
        importlib.import_module("numpy")
    with ft.Executor(1, echo=False) as executor:
        future = executor.submit(int)
        future.add_done_callback(lambda _: None)
        future.result(WAIT_S)


@pytest.fixture(autouse=True)
def nothing_is_left(adopt_orphans):
    """Checks each test for what it leaves behind."""
    with nothing_left():
        yield


@pytest.fixture
def gate(tmp_path):
    """A gate for `work.pass_gate`, opened at the end at the latest."""
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open()


@pytest.fixture
def gates(tmp_path):
    """As many gates as wanted."""
    made = []

    def make():
        made.append(Gate(tmp_path / f"gate{len(made)}"))
        return made[-1]

    yield make
    for gate in made:
        gate.open()


@pytest.fixture
def one():
    """An executor with one worker."""
    with ft.Executor(1) as executor:
        yield executor


@pytest.fixture
def two():
    """An executor with two workers."""
    with ft.Executor(2) as executor:
        yield executor


@pytest.fixture
def program(tmp_path):
    """Runs a script as a process of its own to its end; `.start` leaves that to the test."""

    class Programs:
        def __init__(self):
            self.started = []

        def start(self, text, *args, env=None, **popen):
            script = tmp_path / f"program{len(self.started)}.py"
            script.write_text(textwrap.dedent(text))
            popen = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path} | popen
            process = subprocess.Popen([sys.executable, str(script), *args], env=env or environment(), **popen)
            self.started.append(process)
            return process

        def __call__(self, text, *args, timeout=60, **popen):
            process = self.start(text, *args, **popen)
            out, err = process.communicate(timeout=timeout)
            return subprocess.CompletedProcess(args, process.returncode, out, err)

    programs = Programs()
    yield programs
    for process in programs.started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project, in the current directory, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)
