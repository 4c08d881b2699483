"""The suites of peers: where they come from, which of their cases are claimed, and how many must pass.

Cases that are left out are in `left_out.json`, each with its reason.
"""

import json
import pathlib
from dataclasses import dataclass

HERE = pathlib.Path(__file__).parent

PRIVATE = "private attribute: "  # how a reason begins where a case is about how the peer is made
VACUOUS = "it looks at nothing"  # how a reason ends where a case passes, and shows nothing
# A suite's own words where it skips a case for what this system or interpreter is: no case that is left out.
NOT_HERE = ("Windows-only process limit", "Cannot test without _testcapi module")

REQUIREMENTS = ("cloudpickle==3.1.2", "numpy", "pytest==9.2.0", "loky==3.7.0", "pebble==5.2.3", "joblib==1.6.0")
REQUIREMENTS += ("tblib==3.2.2",)  # for a case of loky's; with psutil its suite would count the children of the host
ARCHIVES = {
    "loky": ("3.7.0", "80928106fe18b5300c6f1b3a871d71e68a81dc9b2fe5c8ee4afe93bb9ba6424d"),
    "pebble": ("5.2.3", "6fce8cc8cbf367588406f66e4b62ec36e22594a6c720bff1d08cc2e565a66af3"),
    "joblib": ("1.6.0", "2ccc96785b12046c08fd6d55839c12857831b54a3c1673ffadd2f04bfc4eda03"),
}


@dataclass(frozen=True)
class Suite:
    """A peer's suite; `groups` maps each kind of case to its pattern and how many of them must pass."""

    name: str
    versions: tuple
    adapter: str
    files: tuple
    groups: dict
    folder: str = ""
    archive: str = ""
    options: tuple = ()
    limit_s: int = 500
    counts: str = "cases"  # or "functions", some of which have many parameters

    def left_out(self, version):
        """Cases that are not claimed, with their reasons."""
        return {**LEFT_OUT.get(self.name, {}), **LEFT_OUT.get(f"{self.name} on {version}", {})}


def divergences():
    """The left column of the published table of deliberate divergences."""
    manual = (HERE.parents[2] / "docs" / "python.md").read_text()
    section = manual.partition("## Deliberate differences from other pools")[2]
    table = section.partition("| elsewhere | here |\n|---|---|\n")[2].partition("\n\n")[0]
    return [row.removeprefix("| ").split(" | ")[0] for row in table.splitlines()]


LEFT_OUT = json.loads((HERE / "left_out.json").read_text())
_ALL = ("3.10", "3.11", "3.12", "3.13")
_CPYTHON = {"adapter": "cpython_adapter", "options": ("-p", "no:logging")}
_SPAWN, _FUTURES = r"^ProcessPoolSpawn", r"^FutureTests"

SUITES = (
    Suite(
        # 57 cases of one start method; as many may be left out as of the 63 of 3.13.
        "cpython-3.10",
        ("3.10", "3.11", "3.12"),
        files=("test_concurrent_futures.py",),
        groups={"process pool": (_SPAWN, 48), "futures": (_FUTURES, 20)},
        **_CPYTHON,
    ),
    Suite(
        "cpython-3.13",
        ("3.13",),
        files=("--pyargs", "test.test_concurrent_futures"),
        groups={"process pool": (_SPAWN, 54), "futures": (_FUTURES, 20)},
        **_CPYTHON,
    ),
    Suite(
        "loky",
        _ALL,
        adapter="loky_adapter",
        archive="loky",
        files=("tests/test_process_executor_loky.py", "tests/test_reusable_executor.py"),
        groups={
            "generic": (r"^TestsProcessPoolLoky", 35),
            "deadlock": (r"^TestExecutorDeadLock", 37),
            "termination": (r"^TestTerminateExecutor", 2),
        },
        options=("-p", "no:faulthandler", "--loky-verbosity=30"),
    ),
    Suite(
        "pebble",
        _ALL,
        adapter="pebble_adapter",
        archive="pebble",
        folder="test",
        files=("test_process_pool_spawn.py",),
        groups={
            "timeout, cancel, SIGTERM, expired workers, stop, large data": (
                r"timeout|cancel|sigterm|expired|stop|large_data",
                20,
            ),
            "the rest": (r"^((?!timeout|cancel|sigterm|expired|stop|large_data).)*$", 20),
        },
    ),
    Suite(
        "joblib",
        _ALL,
        adapter="joblib_adapter",
        archive="joblib",
        files=("joblib/test/test_parallel.py",),
        groups={"backend": (r"\[.*fairtrial", 13)},
        counts="functions",
    ),
)
