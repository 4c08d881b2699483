"""What the package's tests share: a check that each leaves nothing behind, gates to wait at, programs to run."""

import ctypes
import gc
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKAGE_PARENT = str(HERE.parent.parent)
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import work  # noqa: E402

import fairtrial as ft  # noqa: E402

WAIT_S = 30.0  # how long a machine with other things to do may take; nothing waits for it that goes well
PR_SET_CHILD_SUBREAPER = 36


def pytest_report_header():
    return f"fairtrial {ft.__version__} from {Path(ft.__file__).parent}"


def wait_until(holds, timeout=WAIT_S, what="it"):
    """Waits until `holds()` is true, and returns what it gave."""
    deadline = time.monotonic() + timeout
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout} s"
        time.sleep(0.002)


# -- leaks


class Holdings:
    """What this process has: descendants, threads, descriptors, mappings of nameless files."""

    def __init__(self):
        self.processes = set(descendants())
        self.threads = set(os.listdir("/proc/self/task"))
        self.descriptors = set(open_descriptors())
        self.mappings = nameless_mappings()

    def beyond(self, before):
        found = {
            "processes": [describe(pid) for pid in self.processes - before.processes],
            "threads": sorted(self.threads - before.threads),
            "descriptors": sorted(self.descriptors - before.descriptors),
            "mappings": self.mappings - before.mappings if self.mappings > before.mappings else 0,
        }
        return {name: what for name, what in found.items() if what}


def descendants(pid=None):
    """Processes below this one that are not dead, and orphans of theirs: see `adopt_orphans`."""
    found, parents = [], [pid or os.getpid()]
    while parents:
        for child in children(parents.pop()):
            found.append(child)
            parents.append(child)
    return found


def children(pid):
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    except OSError:
        pass  # gone meanwhile
    return found


def describe(pid):
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return f"{pid} {state(pid)} {command[:100]}"
    except OSError:
        return str(pid)


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def open_descriptors():
    for name in os.listdir("/proc/self/fd"):
        try:
            yield int(name), os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass  # that of the listing itself


def nameless_mappings():
    return len(re.findall(r"/memfd:|\(deleted\)$", Path("/proc/self/maps").read_text(), re.MULTILINE))


def reap_orphans():
    for pid in children(os.getpid()):
        if state(pid) == "Z":
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass  # somebody waited for it


@pytest.fixture(scope="session", autouse=True)
def adopt_orphans():
    """Whatever a program under test leaves behind becomes a child of this process, and is seen."""
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    # The two threads that bring callbacks live as long as the process.
    with ft.Executor(1, echo=False) as executor:
        future = executor.submit(int)
        future.add_done_callback(lambda _: None)
        future.result(WAIT_S)


@pytest.fixture(autouse=True)
def nothing_is_left(request, adopt_orphans):
    """After each test: no process, thread, descriptor or mapping more than before."""
    before = Holdings()
    yield
    ft.shutdown()  # the one that `run` uses; all others are the tests' own to end
    gc.collect()
    patient = time.monotonic() + 10
    orphans_at = time.monotonic() + 0.5
    while True:
        left = Holdings().beyond(before)
        if not left:
            return
        if time.monotonic() > orphans_at:
            reap_orphans()
        assert time.monotonic() < patient, f"left behind: {left}"
        time.sleep(0.005)


# -- tools


class Gate:
    """A place in a worker's function where the test holds it."""

    def __init__(self, directory):
        self.path = str(directory)

    @property
    def begun(self):
        return os.path.exists(self.path + ".begun")

    def wait_begun(self):
        wait_until(lambda: self.begun, what="the call's beginning")
        return int(Path(self.path + ".begun").read_text())

    def open(self):
        Path(self.path + ".open").touch()


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


def environment(**more):
    path = os.pathsep.join([PACKAGE_PARENT, str(HERE)])
    return dict(os.environ, PYTHONPATH=path, PYTHONWARNINGS="default", **more)


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


def same(value):
    """Sends a value to a worker and back."""
    with ft.Executor(1) as executor:
        return executor.submit(work.same, value).result(WAIT_S)


def memory_available():
    text = Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable:\s+(\d+)", text)[1]) * 1024
