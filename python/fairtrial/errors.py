"""What a call that failed raises. Each error carries the call's whole outcome."""

from __future__ import annotations

import concurrent.futures
import sys
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool, _RemoteTraceback
from typing import TYPE_CHECKING, Any

from ._engine import EngineError as EngineError  # at home here, with all others

if TYPE_CHECKING:
    from .outcomes import Outcome


if sys.version_info >= (3, 11):
    _Timeout = TimeoutError
else:

    class _Timeout(concurrent.futures.TimeoutError, TimeoutError):
        """Until 3.11 these were two."""


class CandidateError(Exception):
    """A call did not give a value; base of all that a failed call raises.

    >>> import fairtrial as ft
    >>> try:
    ...     ft.run_code("def f(): return {}['x']", "f")
    ... except ft.CandidateError as error:
    ...     print(error.outcome.verdict, error.outcome.error.type)
    exception KeyError
    """

    def __init__(self, message: str = "", outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.outcome: Outcome | None = outcome

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0] if self.args else "", self.outcome)


class TimedOut(CandidateError, _Timeout):
    """The call ran longer than its `timeout`, or used more processor time than it may.

    >>> import fairtrial as ft
    >>> ft.run_code("def f():\\n    while True: pass", "f", timeout=0.2)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fairtrial.errors.TimedOut: timeout
    """


class LimitExceeded(CandidateError):
    """The call passed a limit other than time.

    >>> import fairtrial as ft
    >>> source = "def f(): print('x' * 5000)"
    >>> ft.run_code(source, "f", limits=ft.Limits(output=1000))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fairtrial.errors.LimitExceeded: output_limit
    """


class MemoryExceeded(LimitExceeded, MemoryError):
    """The call used more memory than it may.

    >>> import fairtrial as ft
    >>> issubclass(ft.MemoryExceeded, MemoryError)
    True
    """


class WorkerDied(CandidateError, BrokenProcessPool):
    """The call's process ended without an answer; nobody else's did.

    >>> import fairtrial as ft
    >>> try:
    ...     ft.run_code("import os\\ndef f(): os.abort()", "f")
    ... except ft.WorkerDied as error:
    ...     print("SIGABRT" in str(error))
    True
    """


class SetupError(CandidateError, BrokenProcessPool):
    """The call could not be begun: its interpreter, directory, arguments or preloaded modules.

    >>> import fairtrial as ft
    >>> ft.run_code("def f(): pass", "f", cwd="/nowhere")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fairtrial.errors.SetupError: setup_failed
    """


class ResultError(CandidateError, BrokenProcessPool):
    """The call's value could not be brought home.

    >>> import fairtrial as ft
    >>> ft.run_code("def f(): return object()", "f")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fairtrial.errors.ResultError: bad_result
    """


class Cancelled(CandidateError, CancelledError):
    """The call was cancelled, before it began or while it ran.

    >>> import fairtrial as ft, time
    >>> with ft.Executor(1) as executor:
    ...     future = executor.submit(time.sleep, 60)
    ...     future.cancel()
    True
    """


class QueueTimedOut(CandidateError, _Timeout):
    """The call waited for its turn longer than its `queue_timeout_s`.

    >>> import fairtrial as ft
    >>> issubclass(ft.QueueTimedOut, TimeoutError)
    True
    """


class StudyError(ValueError):
    """A study cannot be run as it is: what is wrong, a line each, as the command says it.

    >>> import fairtrial as ft
    >>> try:
    ...     ft.Study.load("missing.yaml")
    ... except ft.StudyError as error:
    ...     print(error)
    missing.yaml:1:1: cannot read it: No such file or directory; name a study file
    """

    @property
    def lines(self) -> list[str]:
        """Each fault, as `file:line:column: message; hint`."""
        return str(self).splitlines()


_BY_VERDICT: dict[str, type[CandidateError]] = {
    "timeout": TimedOut,
    "cpu_limit": TimedOut,
    "memory_limit": MemoryExceeded,
    "output_limit": LimitExceeded,
    "disk_limit": LimitExceeded,
    "process_limit": LimitExceeded,
    "forbidden": LimitExceeded,
    "signal": WorkerDied,
    "exit": WorkerDied,
    "no_result": WorkerDied,
    "setup_failed": SetupError,
    "bad_result": ResultError,
    "cancelled": Cancelled,
    "exception": CandidateError,
}


def is_ctrl_c(error: object) -> bool:
    """Whether the user pressed it; a call that raised `KeyboardInterrupt` says from where."""
    return isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, _RemoteTraceback)


def error_of(outcome: Outcome) -> CandidateError:
    """The error that an outcome without a value stands for."""
    error = outcome.error
    cls = _BY_VERDICT[outcome.verdict]
    if cls is Cancelled and error is not None and error.type == "QueueTimeout":
        cls = QueueTimedOut
    return cls(_message(outcome), outcome)


def _message(outcome: Outcome) -> str:
    """One line with the facts; what the worker says follows, its traceback last."""
    head = f"{outcome.verdict}: "
    error = outcome.error
    if outcome.exit is not None and outcome.verdict in ("signal", "exit", "no_result"):
        head += f"the worker ended with {outcome.exit}"
        if error is not None and error.message:
            head += f": {error.message}"
    elif error is None:
        head = outcome.verdict
    elif outcome.verdict == "exception":
        head += f"{error.type}: {error.message}" if error.message else error.type
    else:
        head += error.message
    if error is not None and error.traceback:
        return f"{head}\n\n{error.traceback.rstrip()}"
    return head
