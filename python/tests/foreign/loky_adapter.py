"""loky's own tests with fairtrial's executor in the place of loky's; imported before the suite, also in workers."""

import concurrent.futures.process
import os
import tempfile
import time
import types

import loky.process_executor
from private_attributes import note_workers

import fairtrial


class ProcessPoolExecutor(fairtrial.Executor):
    """Takes loky's options, and has those private attributes that tests read on the way to what they are about."""

    def __init__(self, max_workers=None, context=None, timeout=None, env=None, initializer=None, initargs=()):
        options = {"initializer": initializer, "initargs": initargs, "preload": ["loky_adapter"]}
        super().__init__(max_workers, env=env, **options)
        self._pool.options["idle_timeout_s"] = timeout
        note_workers(self)
        self._flags = types.SimpleNamespace(broken=None, shutdown=True)

    def shutdown(self, wait=True, kill_workers=False, **options):
        if kill_workers:
            options = {"cancel_futures": True, "kill_after": 0.0}
        super().shutdown(wait, **options)


def get_reusable_executor(max_workers=None, timeout=10, kill_workers=False, **options):
    """One executor, until another is asked for or it is shut down."""
    given = {"max_workers": max_workers, "timeout": timeout, **options}
    if _kept and (_kept["given"] != given or _kept["executor"]._pool.is_shut_down):
        _kept.pop("executor").shutdown(kill_workers=kill_workers)
        _kept.clear()
    if not _kept:
        _kept.update(given=given, executor=ProcessPoolExecutor(max_workers, timeout=timeout, **options))
    return _kept["executor"]


_kept = {}


class Event:
    """An event that can be sent to another process: a file that is there or not."""

    def __init__(self):
        self.path = os.path.join(tempfile.mkdtemp(prefix="loky_event_"), "set")

    def set(self):
        open(self.path, "w").close()

    def clear(self):
        if self.is_set():
            os.unlink(self.path)

    def is_set(self):
        return os.path.exists(self.path)

    def wait(self, timeout=None):
        end = None if timeout is None else time.monotonic() + timeout
        while not self.is_set() and (end is None or time.monotonic() < end):
            time.sleep(0.005)
        return self.is_set()


class Context:
    """In the place of loky's way to start processes."""

    Event = Event

    def get_start_method(self):
        return "loky"


loky.get_reusable_executor = get_reusable_executor
theirs = loky.process_executor
theirs.ProcessPoolExecutor = ProcessPoolExecutor
theirs.BrokenProcessPool = concurrent.futures.process.BrokenProcessPool
theirs.TerminatedWorkerError = fairtrial.WorkerDied
theirs.ShutdownExecutorError = (RuntimeError, fairtrial.Cancelled)
theirs._RemoteTraceback = concurrent.futures.process._RemoteTraceback


def pytest_collection_modifyitems(items):
    for item in items:
        if hasattr(item.cls, "executor_type"):
            item.cls.context = Context()
