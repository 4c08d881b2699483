"""Runs programs that nobody vouches for, each in a process of its own, and says what they did.

>>> import fairtrial as ft
>>> outcome = ft.run(ft.Call(source="def f(x): return x * 2", function="f", args=[21], timeout_s=5))
>>> outcome.verdict, outcome.value
('ok', 42)
"""

import importlib as _importlib
import sys as _sys
import sysconfig as _sysconfig
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _sys.platform != "linux":
    raise ImportError(f"fairtrial needs Linux 5.13 or later, and this is {_sys.platform}")
if _sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError("fairtrial is not tested with free-threaded Python yet; use the default build")

try:
    from ._engine import EngineError, __version__
except ModuleNotFoundError as _error:
    raise ImportError(
        f"fairtrial's engine is not beside {__file__}: it was not built, or is in a zip archive, from which no library "
        "can be loaded"
    ) from _error
from .backends import Backend, Event, Hooks, LocalBackend, RedisBackend
from .calls import Call, CpuTime, Limits
from .errors import (
    Cancelled,
    CandidateError,
    LimitExceeded,
    MemoryExceeded,
    QueueTimedOut,
    ResultError,
    SetupError,
    StudyError,
    TimedOut,
    WorkerDied,
)
from .evaluating import evaluate
from .evaluations import (
    Baseline,
    BenchTimes,
    Cases,
    Diff,
    Evaluation,
    EvaluationReport,
    Failure,
    SideTimes,
)
from .executor import Executor
from .futures import Future
from .outcomes import Error, Exit, FirstRun, Margin, Metrics, Outcome
from .records import RunRecord, RunRecords
from .running import arun, run, run_code, shutdown
from .studies import Plan, Progress, Study, run_study
from .waiting import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, as_completed, wait

if _TYPE_CHECKING:
    from . import joblib as joblib
    from . import ray as ray

__all__ = [
    "ALL_COMPLETED",
    "Backend",
    "Baseline",
    "BenchTimes",
    "Call",
    "CandidateError",
    "Cancelled",
    "Cases",
    "CpuTime",
    "Diff",
    "EngineError",
    "Error",
    "Evaluation",
    "EvaluationReport",
    "Event",
    "Executor",
    "Exit",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "Failure",
    "FirstRun",
    "Future",
    "Hooks",
    "LimitExceeded",
    "Limits",
    "LocalBackend",
    "Margin",
    "MemoryExceeded",
    "Metrics",
    "Outcome",
    "Plan",
    "Progress",
    "QueueTimedOut",
    "RedisBackend",
    "ResultError",
    "RunRecord",
    "RunRecords",
    "SetupError",
    "SideTimes",
    "Study",
    "StudyError",
    "TimedOut",
    "WorkerDied",
    "__version__",
    "arun",
    "as_completed",
    "evaluate",
    "run",
    "run_code",
    "run_study",
    "shutdown",
    "wait",
]


def __getattr__(name: str) -> object:
    if name in ("joblib", "ray"):  # imported when asked for: they need packages that not everybody has
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
