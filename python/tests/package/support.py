"""What the package's tests share beside fixtures: waiting, gates, what a process holds, programs' surroundings."""

import contextlib
import gc
import os
import re
import threading
import time
from pathlib import Path

import pytest
import work

import fairtrial as ft

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
PACKAGE_PARENT = str(HERE.parent.parent)
WAIT_S = 30.0  # how long a machine with other things to do may take; nothing waits for it that goes well


def wait_until(holds, timeout=WAIT_S, what="it"):
    """Waits until `holds()` is true, and returns what it gave."""
    deadline = time.monotonic() + timeout
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout} s"
        time.sleep(0.002)


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
            # By number: the watchdog of pytest's own fault handler is another thread in each test.
            "threads": [thread_name(thread) for thread in self.threads]
            if len(self.threads) > len(before.threads)
            else [],
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


def thread_name(number):
    """What Python calls it, or the kernel."""
    for thread in threading.enumerate():
        if str(thread.native_id) == number:
            return thread.name
    try:
        return Path(f"/proc/self/task/{number}/comm").read_text().strip()
    except OSError:
        return number


def is_gone(pid):
    """Whether a process is dead, perhaps not yet waited for by whom it was left to."""
    return state(pid) in ("gone", "Z", "X")


def open_descriptors():
    for name in os.listdir("/proc/self/fd"):
        try:
            yield int(name), os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass  # that of the listing itself


def nameless_mappings():
    return len(re.findall(r"/memfd:|/#\d+ \(deleted\)", Path("/proc/self/maps").read_text()))


def reap_orphans():
    for pid in children(os.getpid()):
        if state(pid) == "Z":
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass  # somebody waited for it


@contextlib.contextmanager
def nothing_left():
    """Afterwards there is no process, thread, descriptor or mapping more than before."""
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


def environment(**more):
    path = os.pathsep.join([PACKAGE_PARENT, str(HERE)])
    return dict(os.environ, PYTHONPATH=path, PYTHONWARNINGS="default", **more)


def same(value):
    """Sends a value to a worker and back."""
    with ft.Executor(1) as executor:
        return executor.submit(work.same, value).result(WAIT_S)


def big(needed):
    """Skips a test that takes much, where there is not so much memory or nobody wants it."""
    if os.environ.get("FAIRTRIAL_TEST_BIG") == "0":
        pytest.skip("FAIRTRIAL_TEST_BIG is 0")
    available = memory_available()
    if available < needed:
        pytest.skip(f"{needed >> 30} GiB of memory wanted, {available >> 30} GiB available")


def memory_available():
    text = Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable:\s+(\d+)", text)[1]) * 1024


def binary():
    """The command that was built last."""
    named = os.environ.get("FAIRTRIAL_BINARY")
    built = [Path(named)] if named else [ROOT / "target" / profile / "fairtrial" for profile in ("debug", "release")]
    built = [path for path in built if path.is_file()]
    if not built:
        pytest.skip("there is no `fairtrial` program: FAIRTRIAL_BINARY names none, and none was built")
    return max(built, key=lambda path: path.stat().st_mtime)
