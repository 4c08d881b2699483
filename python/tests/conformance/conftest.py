"""One suite for every backend (EX-90, CL-74); a factory of backends is its only parameter."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest

if str(Path(__file__).parent) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parent))

# What a level forbids is another suite's; here the calls' files are in the way of it.
os.environ.setdefault("FAIRTRIAL_SANDBOX", "none")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from conformance_kinds import KINDS, factory  # noqa: E402
from conformance_skips import SKIPS  # noqa: E402

WAIT_S = 60.0  # how long a machine with other things to do may take; nothing waits for it that goes well


def pytest_collection_modifyitems(items):
    """Skips what the list says."""
    for item in items:
        if Path(__file__).parent in Path(item.fspath).parents:
            kind = getattr(item, "callspec", None) and item.callspec.params.get("make")
            reason = SKIPS.get((kind, item.originalname))
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """What nodes keep is kept in a directory of the tests' own."""
    before = os.environ.get("FAIRTRIAL_CACHE_DIR")
    os.environ["FAIRTRIAL_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ.pop("FAIRTRIAL_CACHE_DIR")
    if before is not None:
        os.environ["FAIRTRIAL_CACHE_DIR"] = before


@pytest.fixture(scope="session", params=KINDS)
def make(request, cache):
    """The factory."""
    with factory(request.param) as make:
        yield make


@pytest.fixture(scope="session")
def shared(make):
    """A backend that many tests use, each leaving it as it was."""
    with make() as backend:
        yield backend


@pytest.fixture
def backend(shared):
    return shared


@pytest.fixture
def own(make):
    """A backend of the test's own."""
    with make() as backend:
        yield backend


class Gate:
    """A place in a call where the test holds it."""

    SOURCE = (
        "import os, time\n"
        "def f(place, value=1):\n"
        "    with open(place + '.new', 'w') as file:\n"
        "        file.write(str(os.getpid()))\n"
        "    os.rename(place + '.new', place + '.begun')\n"
        "    while not os.path.exists(place + '.open'):\n"
        "        time.sleep(0.005)\n"
        "    return value\n"
    )

    def __init__(self, place):
        self.place = str(place)

    @property
    def has_begun(self):
        return os.path.exists(self.place + ".begun")

    def wait_begun(self):
        wait_until(lambda: self.has_begun, "the call's beginning")
        return int(Path(self.place + ".begun").read_text())

    def open(self):
        Path(self.place + ".open").touch()


@pytest.fixture
def gates(tmp_path):
    """As many gates as wanted, opened at the end at the latest."""
    made = []

    def make():
        made.append(Gate(tmp_path / f"gate{len(made)}"))
        return made[-1]

    yield make
    for gate in made:
        gate.open()


def wait_until(holds, what="it"):
    """Waits until `holds()` is true, and returns what it gave."""
    deadline = time.monotonic() + WAIT_S
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not happen within {WAIT_S} s"
        threading.Event().wait(0.005)


def is_gone(pid):
    """Whether a process is dead, perhaps not yet waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True
