"""CPython's own tests of process pools, run against fairtrial: the "spawn" cases, with another executor in its place.

Imported before the suite; see `suites.py` for what runs it.
"""

import concurrent.futures
import multiprocessing
import os
import sys
import types

import fairtrial


class Executor(fairtrial.Executor):
    """With those private attributes of the standard one that tests read on the way to what they are about."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._pool._start()
        self._processes, engine = {}, self._pool.engine
        engine.subscribe(lambda name, fields, workers=self._processes: _note(workers, name, fields))
        ended = types.SimpleNamespace(join=lambda: engine.shutdown(True, False, None))
        self._executor_manager_thread = ended
        self._call_queue = types.SimpleNamespace(join_thread=ended.join)

    @property
    def _broken(self):
        return self._pool.breakage.error is not None


def _note(workers, name, fields):
    if name == "worker_start":
        workers[fields["worker_id"]] = types.SimpleNamespace(join=lambda: None)
    elif name == "worker_exit":
        workers.pop(fields["worker_id"], None)


def install(suite):
    """Puts the executor into a module of the suite."""
    if hasattr(suite, "ProcessPoolSpawnMixin"):
        mixin = suite.ProcessPoolSpawnMixin
        mixin.executor_type = type("ProcessPoolExecutor", (Executor,), {})
        mixin.get_context = lambda self: multiprocessing.get_context("spawn")
        if "ctx" in vars(mixin):
            del mixin.ctx  # its tests then log in the host, and name no start method
    if hasattr(suite, "assert_python_ok"):
        start = (
            f"import sys, cpython_adapter, {suite.__name__} as suite; sys.modules['test.test_concurrent_futures'] = "
        )
        start += "sys.modules.get('test.test_concurrent_futures', suite)\n"
        run, path = suite.assert_python_ok, os.pathsep.join(sys.path)
        suite.assert_python_ok = lambda flag, code: run(flag, start + code, __isolated=False, PYTHONPATH=path)


def pytest_collection_modifyitems(items):
    """As a plugin of pytest: when the suite is there."""
    for module in {item.module for item in items}:
        install(module)


concurrent.futures.ProcessPoolExecutor = Executor
