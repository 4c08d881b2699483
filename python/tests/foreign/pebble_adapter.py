"""pebble's own tests of process pools with a pool of its shape over fairtrial's executor; imported before the suite."""

import os
import threading
import time
import types
from concurrent.futures import TimeoutError

import pebble

import fairtrial
from fairtrial.executor import Executor


class ProcessExpired(fairtrial.WorkerDied):
    """With pebble's names for what an outcome says."""

    @property
    def exitcode(self):
        return self.outcome.exit.code

    @property
    def pid(self):
        return self.outcome.metrics.worker_pid


class ProcessPool:
    """`schedule`, `map`, `close`, `stop`, `join` and `active`, as pebble has them."""

    def __init__(self, max_workers=None, max_tasks=0, initializer=None, initargs=(), context=None):
        self._executor = Executor(
            max_workers or os.cpu_count(),
            max_tasks_per_child=max_tasks or None,
            initializer=initializer,
            initargs=tuple(initargs),
            preload=["pebble_adapter"],
        )
        self._executor._pool._start()
        self._workers = _Workers(self._executor._pool.engine)
        self._pool_manager = types.SimpleNamespace(worker_manager=self._workers)
        self._probe = None
        self._is_open = True
        self._is_over = False

    def schedule(self, function, args=(), kwargs=None, timeout=None):
        return self._executor.options(timeout=timeout).submit(function, *args, **(kwargs or {}))

    def submit(self, function, timeout, /, *args, **kwargs):
        return self.schedule(function, args, kwargs, timeout)

    def map(self, function, *iterables, chunksize=1, timeout=None):
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1")
        return _MapFuture([self.schedule(function, args, timeout=timeout) for args in zip(*iterables)])

    def close(self):
        self._is_open = False
        self._executor.shutdown(wait=False)

    def stop(self):
        self._is_open, self._is_over = False, True
        self._executor.shutdown(wait=False, cancel_futures=True, kill_after=0.0)

    def join(self, timeout=None):
        if self._is_open:
            raise RuntimeError("the pool is still running")
        end = None if timeout is None else time.monotonic() + timeout
        while not self._executor._pool.engine.is_finished():
            if end is not None and time.monotonic() > end:
                raise TimeoutError("the pool still has work")
            time.sleep(0.01)
        self._is_over = True
        self._workers.forget_ended()

    @property
    def active(self):
        if self._probe is None and self._is_open:
            self._probe = self._executor.submit(int)  # pebble's starts its workers here
        return not self._is_over and self._executor._pool.shared.error is None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        self.join()


class _MapFuture:
    def __init__(self, futures):
        self._futures = futures

    def result(self):
        return _Results(self._futures)

    def cancel(self):
        return any([future.cancel() for future in self._futures])


class _Results:
    """Goes on after an error."""

    def __init__(self, futures):
        self._futures = iter(futures)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._futures).result()


class _Workers:
    """`workers`: the processes that were started, and, once they are waited for, those of them that are left."""

    def __init__(self, engine):
        self._started, self._ended = {}, set()
        self._first = threading.Event()
        engine.subscribe(self._note)

    def _note(self, name, fields):
        if name == "worker_start":
            self._started[fields["worker_id"]] = fields["pid"]
            self._first.set()
        elif name == "worker_exit":
            self._ended.add(fields["worker_id"])

    @property
    def workers(self):
        self._first.wait(10)
        return list(self._started.values())

    def forget_ended(self):
        self._started = {id: pid for id, pid in self._started.items() if id not in self._ended}


fairtrial.errors.WorkerDied = ProcessExpired
fairtrial.errors._BY_VERDICT.update(dict.fromkeys(["signal", "exit", "no_result"], ProcessExpired))
pebble.ProcessPool, pebble.ProcessExpired = ProcessPool, ProcessExpired
