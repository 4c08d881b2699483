"""The suites of peers: where they come from, which of their cases are claimed, and how many must pass.

Cases that are left out are in `left_out.json`, each with its reason.
"""

import json
import pathlib
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).parent

# The left column of the table of deliberate divergences.
DIVERGENCES = (
    "one crash breaks the pool; later `submit` fails",
    "`cancel()` on running work returns False",
    "workers inherit the whole environment",
    "changes to cwd, environment, `sys.path` persist in a worker",
    "a chunk fails as a whole",
    "`with` waits on Ctrl-C",
    "`__main__` is imported again in workers",
)
# What else a reason may begin with.
OTHER_REASONS = (
    "private attribute: ",  # the case is about how the peer is made
    "own feature: ",  # of the peer: no executor-generic case
    "platform: ",
    "needs: ",  # passes where it is there
)

REQUIREMENTS = ("cloudpickle==3.1.2", "numpy", "pytest==9.2.0", "loky==3.7.0", "pebble==5.2.3", "joblib==1.6.0")
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
    left_out: dict = field(default_factory=dict)


_LEFT_OUT = json.loads((HERE / "left_out.json").read_text())
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
        left_out=_LEFT_OUT["cpython-3.10"],
        **_CPYTHON,
    ),
    Suite(
        "cpython-3.13",
        ("3.13",),
        files=("--pyargs", "test.test_concurrent_futures"),
        groups={"process pool": (_SPAWN, 54), "futures": (_FUTURES, 20)},
        left_out=_LEFT_OUT["cpython-3.13"],
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
        left_out=_LEFT_OUT["loky"],
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
        left_out=_LEFT_OUT["pebble"],
    ),
    Suite(
        "joblib",
        _ALL,
        adapter="joblib_adapter",
        archive="joblib",
        files=("joblib/test/test_parallel.py",),
        # 14 functions, some with many parameters.
        groups={"backend": (r"\[.*fairtrial", 70)},
        left_out=_LEFT_OUT["joblib"],
    ),
)
