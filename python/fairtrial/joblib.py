"""A joblib backend: `Parallel` calls whose tasks cannot harm one another, nor later calls.

>>> import fairtrial as ft, joblib
>>> ft.joblib.register()
>>> with joblib.parallel_config(backend="fairtrial", n_jobs=2):
...     joblib.Parallel()(joblib.delayed(pow)(2, n) for n in range(4))
[1, 2, 4, 8]
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sized
from typing import Any, TypeVar

from ._checks import check_texts, refuse_unknown
from .executor import Executor, default_workers
from .futures import Future

try:
    from joblib.parallel import (  # type: ignore[import-untyped]
        AutoBatchingMixin,
        FallbackToBackend,
        ParallelBackendBase,
        SequentialBackend,
        register_parallel_backend,
    )
except ImportError as _error:
    raise ImportError("fairtrial.joblib needs joblib: pip install fairtrial[joblib]") from _error

__all__ = ["FairtrialBackend", "register", "shutdown"]

T = TypeVar("T")

_EXECUTOR_OPTIONS = (
    "timeout",
    "isolation",
    "limits",
    "sandbox",
    "preload",
    "preload_shared",
    "env",
    "python",
    "echo",
    "max_tasks_per_child",
)
_OF_JOBLIB = frozenset(("max_nbytes", "temp_folder", "mmap_mode", "prefer", "require", "verbose", "context"))


def register() -> None:
    """Makes `backend="fairtrial"` known to joblib.

    >>> import fairtrial as ft
    >>> ft.joblib.register()
    """
    register_parallel_backend("fairtrial", FairtrialBackend)


def shutdown() -> None:
    """Ends workers that wait for a next `Parallel` call; that starts others.

    >>> import fairtrial as ft
    >>> ft.joblib.shutdown()
    """
    _pools.close()


class FairtrialBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """What joblib asks of a backend. Options of `Executor` can be given to `joblib.parallel_config`; `timeout` is each
    task's.

    >>> import fairtrial as ft
    >>> ft.joblib.FairtrialBackend().effective_n_jobs(3)
    3
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    default_n_jobs = -1

    _executor: Executor | None = None

    def __init__(
        self, nesting_level: int | None = None, inner_max_num_threads: int | None = None, **options: Any
    ) -> None:
        refuse_unknown("the fairtrial backend", options, _EXECUTOR_OPTIONS)
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._options = options

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many tasks run at once: -1 is one for each processor, -2 one less."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or (self.nesting_level or 0) > 1:
            return 1  # below two levels of parallel calls there is nothing to gain
        return n_jobs if n_jobs > 0 else max(default_workers() + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        """Takes workers for a `Parallel` call, or for all within a `with` block."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        given = self._options | {name: value for name, value in options.items() if name not in _OF_JOBLIB}
        refuse_unknown("the fairtrial backend", given, _EXECUTOR_OPTIONS)
        self._timeout: float | None = given.get("timeout")
        if self._timeout is not None:  # to load it is no part of a task's time
            given["preload"] = (*check_texts("preload", given.get("preload", ())), __name__)
        caps: dict[str, str] = self._prepare_worker_env(n_jobs)
        env = given.get("env")
        given["env"] = dict(os.environ) | caps if env == "inherit" else caps | dict(env or {})
        self.parallel = parallel
        self._lock = threading.Lock()
        self._running: set[Future[Any]] = set()
        self._executor = _pools.take(n_jobs, given)
        return n_jobs

    def compute_batch_size(self) -> int:
        """How many tasks go together; with a `timeout` each has its own."""
        size: int = super().compute_batch_size()
        return size if self._timeout is None else 1

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Future[Any]:
        """Submits a batch of tasks."""
        assert self._executor is not None, "joblib configures a backend before it submits"
        executor, tasks = self._executor, len(func) if isinstance(func, Sized) else 1
        if self._timeout is not None and tasks > 1:  # a `batch_size` that was asked for
            executor = executor.options(timeout=tasks * self._timeout)
        future = executor.submit(_in_worker, func)
        with self._lock:
            self._running.add(future)
        future.add_done_callback(self._forget)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    apply_async = submit  # what joblib before 1.5 calls

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._running.discard(future)

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """The results of a batch; raises what its task raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Kills what this call has running, and nothing else."""
        if self._executor is not None:
            with self._lock:
                running = list(self._running)
            for future in running:
                future.cancel()

    def terminate(self) -> None:
        """The call is over: its workers are free for the next."""
        executor, self._executor = self._executor, None
        if executor is not None:
            _pools.give_back(executor)
        self.reset_batch_stats()


def _in_worker(func: Callable[[], T]) -> T:
    """Runs a batch where the backend is known by name, as it is in the host: tasks may nest it."""
    register()
    return func()


class _Pools:
    """Executors for calls; one that is idle is kept for the next call on the same terms."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._terms: dict[Executor, Any] = {}
        self._idle: Executor | None = None

    def take(self, n_jobs: int, options: dict[str, Any]) -> Executor:
        terms = (n_jobs, options)
        with self._lock:
            idle, self._idle = self._idle, None
            if idle is not None and self._terms[idle] == terms:
                return idle
        if idle is not None:
            self._end(idle)
        executor = Executor(n_jobs, **options)
        with self._lock:
            self._terms[executor] = terms
        return executor

    def give_back(self, executor: Executor) -> None:
        with self._lock:
            former, self._idle = self._idle, executor
        if former is not None:
            self._end(former)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, None
        if idle is not None:
            self._end(idle)

    def _end(self, executor: Executor) -> None:
        with self._lock:
            self._terms.pop(executor, None)
        # Its callbacks' thread may be the one that ends it.
        executor.shutdown(wait=False)


_pools = _Pools()
