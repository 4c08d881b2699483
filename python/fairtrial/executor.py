"""A drop-in `concurrent.futures` executor that survives what its functions do."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing.process import current_process
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar

from . import _echo, _engine, _lifetime, _pickling
from ._checks import (
    check_env,
    check_flag,
    check_items,
    check_kill_after,
    check_path,
    check_text,
    check_texts,
    check_workers,
    refuse_unknown,
)
from ._interrupts import is_interrupt
from ._logging import HostLogging
from .backends import engine_options
from .calls import DEFAULT_CAPTURE_BYTES, CpuTime, Limits, as_limits, as_sandbox, check_timeout, engine_terms
from .errors import is_ctrl_c
from .futures import Future, Shared
from .outcomes import Outcome, message, unstarted

P = ParamSpec("P")
T = TypeVar("T")
_AS_BEFORE: Any = type("_AsBefore", (), {"__repr__": lambda _: "<as before>"})()


class Executor(concurrent.futures.Executor):
    """Runs functions in other processes. One that hangs, crashes or is killed costs its own future and no other.

    >>> import fairtrial as ft
    >>> with ft.Executor(2) as executor:
    ...     list(executor.map(pow, [2, 3], [5, 2]))
    [32, 9]
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        isolation: Literal["reuse", "fresh"] = "reuse",
        timeout: float | CpuTime | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        sandbox: str | Mapping[str, Any] | None = None,
        preload: Iterable[str] = (),
        preload_shared: Iterable[str] = (),
        env: Mapping[str, str | None] | Literal["inherit"] | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks_per_child: int | None = None,
        mp_context: Any = None,
        python: str | os.PathLike[str] | None = None,
        result: Literal["pickle", "data"] = "pickle",
        echo: bool = True,
        **unknown: NoReturn,
    ) -> None:
        """`isolation="fresh"` gives each call a process of its own; `timeout` counts from when a call begins;
        a `CpuTime` counts its processor time.

        `env` adds to what workers get of the environment, and "inherit" passes all of it. `echo` passes on what
        workers write. `sandbox` is a level or a mapping: "none", unless FAIRTRIAL_SANDBOX says otherwise.
        `mp_context` is accepted for compatibility.
        """
        refuse_unknown(Executor, unknown)
        _check_pool_options(max_workers, initializer, max_tasks_per_child, mp_context)
        given = {"isolation": isolation, "timeout": timeout, "limits": limits, "sandbox": sandbox, "preload": preload}
        given |= {"preload_shared": preload_shared, "env": env, "result": result, "echo": echo}
        arguments = tuple(check_items("initargs", initargs))
        self._terms = _Terms(
            **_checked(given),
            python=_check_python(python),
            logging=HostLogging(),
            initializer=None if initializer is None else _pickling.body((initializer, arguments, {})),
        )
        self._terms.made()  # the engine's objections are raised here
        options = engine_options(max_workers=max_workers, max_calls=max_tasks_per_child)
        self._pool = _Pool(options, initializer is not None)

    @property
    def _max_workers(self) -> int:
        return self._pool.max_workers

    def options(
        self,
        *,
        timeout: float | CpuTime | None = _AS_BEFORE,
        limits: Limits | Mapping[str, Any] | None = _AS_BEFORE,
        env: Mapping[str, str | None] | Literal["inherit"] | None = _AS_BEFORE,
        echo: bool = _AS_BEFORE,
        isolation: Literal["reuse", "fresh"] = _AS_BEFORE,
        preload: Iterable[str] = _AS_BEFORE,
        preload_shared: Iterable[str] = _AS_BEFORE,
        sandbox: str | Mapping[str, Any] | None = _AS_BEFORE,
        result: Literal["pickle", "data"] = _AS_BEFORE,
        **unknown: NoReturn,
    ) -> Executor:
        """The same workers on other terms; what is not given stays as it was.

        >>> import fairtrial as ft, time
        >>> with ft.Executor(1) as executor:
        ...     executor.options(timeout=0.1).submit(time.sleep, 60).exception().outcome.verdict
        'timeout'
        """
        refuse_unknown(Executor.options, unknown)
        given: dict[str, Any] = {"timeout": timeout, "limits": limits, "env": env, "echo": echo, "isolation": isolation}
        given |= {"preload": preload, "preload_shared": preload_shared, "sandbox": sandbox, "result": result}
        changed = {name: value for name, value in given.items() if value is not _AS_BEFORE}
        other = Executor.__new__(Executor)
        other._pool = self._pool
        other._terms = _Terms(**(self._terms.given | _checked(changed)))
        other._terms.made()
        return other

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submits `fn(*args, **kwargs)`; what is wrong with them is the future's to tell."""
        return self._pool.submit(self._terms, (fn, args, kwargs))

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """As `map`, in order, with calls in parallel. With `buffersize`, at most so many are submitted ahead."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        return _Map(self, fn, zip(*iterables), timeout, buffersize)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False, kill_after: float | None = None) -> None:
        """Takes no more calls. What still runs `kill_after` seconds from now is killed."""
        self._pool.shutdown(wait, cancel_futures, kill_after)

    def __exit__(self, exc_type: type[BaseException] | None, exc_val: object, exc_tb: object) -> None:
        if is_ctrl_c(exc_val):
            self.shutdown(cancel_futures=True, kill_after=0.0)
        else:
            try:
                self.shutdown(wait=True)
            except KeyboardInterrupt:
                self.shutdown(cancel_futures=True, kill_after=0.0)
                raise

    def __repr__(self) -> str:
        return f"<Executor max_workers={self._max_workers} isolation={self._terms.isolation!r}>"


class _Map(Iterator[T]):
    """Results of a `map` in order; what is yielded is not kept."""

    def __init__(
        self,
        executor: Executor,
        fn: Callable[..., T],
        items: Iterator[tuple[Any, ...]],
        timeout: float | None,
        buffersize: int | None,
    ) -> None:
        from collections import deque
        from itertools import islice
        from threading import Lock
        from time import monotonic

        self._lock = Lock()
        self._clock = monotonic
        self._end = None if timeout is None else monotonic() + timeout
        self._executor = executor if buffersize else None
        self._fn, self._items = fn, items
        self._begun = False
        self._futures: deque[Future[T]] = deque()
        submit = executor.submit
        self._futures.extend(submit(fn, *item) for item in (islice(items, buffersize) if buffersize else items))

    def __next__(self) -> T:
        if not self._lock.acquire(blocking=False):
            raise ValueError("generator already executing")  # as the standard library's, for it is one there
        try:
            return self._next()
        finally:
            self._lock.release()

    def _next(self) -> T:
        self._begun = True
        if not self._futures:
            raise StopIteration
        if self._executor is not None:
            for item in self._items:
                self._futures.append(self._executor.submit(self._fn, *item))
                break
        left = None if self._end is None else max(self._end - self._clock(), 0)
        try:
            value = self._futures[0].result(left)
            self._futures.popleft()
            return value
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Cancels what has not begun."""
        while self._futures:
            future = self._futures.pop()
            if not future.running():
                future.cancel()

    def __del__(self) -> None:
        if self._begun:  # a map whose results nobody asks for still runs
            self.close()


class _Terms:
    """The terms of an executor's calls; the engine's form of them is made when a worker is first needed."""

    def __init__(self, **terms: Any) -> None:
        self.given = terms
        self.isolation: str = terms["isolation"]
        self.timeout_s: float | None
        self.time: str
        self.timeout_s, self.time = terms["timeout_s"]
        self.queue_timeout_s: float | None = None
        self.limits: Limits = terms["limits"]
        self.sandbox: str | Mapping[str, Any] | None = terms["sandbox"]
        self.cwd: str | None = None
        self.capture_bytes = DEFAULT_CAPTURE_BYTES
        self.echo: bool = terms["echo"]
        self._made: tuple[list[str], list[str], str | None, _engine.Terms] | None = None

    def made(self, for_submission: bool = False) -> _engine.Terms:
        """The engine's form: made anew when `sys.path` or `sys.argv` changed, for workers have the host's."""
        argv = getattr(sys, "argv", [])
        logging = self.given["logging"].text(for_submission)
        if self._made is None or self._made[:3] != (sys.path, argv, logging):
            given = self.given
            env = dict(os.environ) if given["env"] == "inherit" else given["env"]
            python = {
                "python": given["python"],
                "python_path": [],
                # A call by value needs it, and a fresh process would import it each time.
                "preload": [*given["preload"], *(["cloudpickle"] if self.isolation == "fresh" else [])],
                "preload_shared": list(given["preload_shared"]),
                "isolation": self.isolation,
                "result": given["result"],
                "host": of_host(given["initializer"], logging),
            }
            made = _engine.Terms.pickled(engine_terms(self, env), python)
            self._made = list(sys.path), list(argv), logging, made  # at once: other threads look at it
        return self._made[3]


def of_host(initializer: bytes | None = None, logging: str | None = None) -> dict[str, Any]:
    """What workers that run the host's own functions get of it."""
    here = _cwd()
    return {
        "sys_path": [entry or here for entry in sys.path if isinstance(entry, str) and (entry or here)],
        "argv": list(getattr(sys, "argv", [])),
        "faulthandler": os.environ.get("PYTHONFAULTHANDLER") != "0",
        "authkey": current_process().authkey.hex(),
        "logging": logging,
        "initializer": initializer,
    }


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """Terms as users give them, checked, under the names they have here."""
    checks: dict[str, Callable[[str, Any], Any]] = {
        "timeout": check_timeout,
        "limits": lambda _, value: as_limits(value),
        "env": lambda _, value: value if value == "inherit" else check_env(value),
        "echo": check_flag,
        "preload": check_texts,
        "preload_shared": check_texts,
        "isolation": check_text,
        "sandbox": lambda _, value: as_sandbox(value),
        "result": check_text,
    }
    return {"timeout_s" if name == "timeout" else name: checks[name](name, value) for name, value in given.items()}


class _Pool:
    """An engine and who may use it; shared by an executor and those made by its `options`."""

    def __init__(self, options: dict[str, Any], has_initializer: bool) -> None:
        self.options = options
        self.has_initializer = has_initializer
        self.max_workers = options["max_workers"] or default_workers()
        self.generation = -1
        self.is_shut_down = False

    def submit(self, terms: _Terms, work: Any) -> Future[Any]:
        if self.generation != _lifetime.generation:
            self._start()
        shared = self.shared
        if shared.error is not None:
            raise BrokenProcessPool(*shared.error.args)
        if self.is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if _lifetime.lifetime.ending:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        try:
            made = terms.made(for_submission=True)
            pending = _pickling.submit(self.engine, made, work, self.echo.tap if terms.echo else None)
        except _engine.EngineError:
            if shared.error is not None:
                raise BrokenProcessPool(*shared.error.args) from None
            if self.is_shut_down:  # by another thread, meanwhile
                raise RuntimeError("cannot schedule new futures after shutdown") from None
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            return _failed(error)
        future: Future[Any] = Future(pending, shared)
        if self.has_initializer:
            future._condition  # watched: its failure concerns all  # noqa: B018
        return future

    def _start(self) -> None:
        with _lifetime.lifetime.lock:
            if self.generation == _lifetime.generation:
                return
            _lifetime.check_kernel()
            self.engine = _engine.Backend(self.options)
            self.echo = _echo.Echo()
            self.shared = Shared(trusted=True)
            if self.has_initializer:
                self.shared.report = _reporter(self.shared, self.engine)
            self.owner = _lifetime.Owner(self.engine, self.echo, self.shared)
            _lifetime.lifetime.add(self.owner, _lifetime.lifetime.executors)
            # Dropped without a shutdown: what was submitted is finished, then its workers end.
            weakref.finalize(self, self.owner.drop).atexit = False
            self.generation = _lifetime.generation

    def shutdown(self, wait: bool, cancel_queued: bool, kill_after: float | None) -> None:
        kill_after = check_kill_after(kill_after)
        self.is_shut_down = True
        with _lifetime.lifetime.lock:
            if self.generation != _lifetime.generation:
                return  # nothing was started, or only in the parent
        self.owner.shutdown(wait, cancel_queued, kill_after)


def _reporter(shared: Shared, engine: _engine.Backend) -> Callable[[Outcome], None]:
    def report(outcome: Outcome) -> None:
        """The initializer failed: no call of this executor can run."""
        with shared.lock:
            if shared.error is not None:
                return
            assert outcome.error is not None, "a failed initializer has a report"
            shared.error = BrokenProcessPool(
                "A process in the process pool was terminated abruptly: the initializer failed: "
                + outcome.error.message
            )
        logging.getLogger("concurrent.futures").critical(
            "Exception in initializer:\n%s", outcome.error.traceback or outcome.error.message
        )
        engine.shutdown(False, True, 0.0)

    return report


class _Over:
    """In the place of a pending call: one that failed before it was submitted."""

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def over(self) -> bool:
        return True

    def running(self) -> bool:
        return False

    def cancel(self) -> bool:
        return False

    def watch(self, watch: object, future: object) -> bool:
        return False

    def ending(self) -> str:
        return "failed"

    def wait_answer(self, timeout: float | None = None) -> bool:
        return True

    call_id = None


def _failed(error: BaseException) -> Future[Any]:
    """A future of a call that could not be pickled."""
    if not isinstance(error, Exception):
        failure = pickle.PicklingError(f"pickling raised {type(error).__name__}: {message(error)}")
        failure.__cause__, error = error, failure
    future: Future[Any] = Future(_Over(), Shared())  # type: ignore[arg-type]
    future._answer = (None, error)
    future._taken = unstarted(error)
    return future


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None  # removed meanwhile


def default_workers() -> int:
    """The processors this process may use, or what FAIRTRIAL_MAX_WORKERS says."""
    text = os.environ.get("FAIRTRIAL_MAX_WORKERS", "").strip()
    return int(text) if text.isdigit() and int(text) else len(os.sched_getaffinity(0))


def _check_pool_options(max_workers: Any, initializer: Any, max_tasks_per_child: Any, mp_context: Any) -> None:
    check_workers(max_workers)
    if initializer is not None and not callable(initializer):
        raise TypeError("initializer must be a callable")
    if max_tasks_per_child is not None:
        if not isinstance(max_tasks_per_child, int):
            raise TypeError("max_tasks_per_child must be an integer")
        if max_tasks_per_child <= 0:
            raise ValueError("max_tasks_per_child must be >= 1")
        method = mp_context if isinstance(mp_context, str) or mp_context is None else mp_context.get_start_method()
        if method == "fork":
            raise ValueError(
                "max_tasks_per_child is incompatible with the 'fork' multiprocessing start method; "
                "supply a different mp_context."
            )


def _check_python(python: str | os.PathLike[str] | None) -> str:
    if python is None:
        return sys.executable
    python = check_path("python", python)
    if not python:
        raise ValueError("`python` is empty; name an interpreter")
    if python != sys.executable:
        theirs, ours = _version(python), "%d.%d" % sys.version_info[:2]
        if theirs != ours:
            raise ValueError(f"`python`: {python} is Python {theirs}; functions are pickled for {ours}, as this one is")
    return python


@lru_cache
def _version(python: str) -> str:
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        asked = subprocess.run([python, "-Ic", ask], capture_output=True, text=True, check=True, timeout=30)
        return asked.stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"`python`: {python} is no interpreter: {error}") from None
