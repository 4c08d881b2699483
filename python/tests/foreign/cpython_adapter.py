"""CPython's tests of process pools with fairtrial's executor: the cases of the "spawn" start method."""

import concurrent.futures
import multiprocessing
import os
import sys

from private_attributes import note_workers

import fairtrial


class Executor(fairtrial.Executor):
    """With those private attributes of the standard one that tests read on the way to what they are about."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        note_workers(self)

    @property
    def _broken(self):
        return self._pool.shared.error is not None


def pytest_collection_modifyitems(items):
    for suite in {item.module for item in items}:
        if hasattr(suite, "ProcessPoolSpawnMixin"):
            mixin = suite.ProcessPoolSpawnMixin
            mixin.executor_type = type("ProcessPoolExecutor", (Executor,), {})
            mixin.get_context = lambda self: multiprocessing.get_context("spawn")
            mixin.setUp = lambda self, mixin=mixin: (super(mixin, self).setUp(), _begin(self))
            vars(mixin).get("ctx") and delattr(mixin, "ctx")  # its tests then log in the host, and name no start method
        if hasattr(suite, "assert_python_ok"):
            suite.assert_python_ok = _with_adapter(suite.assert_python_ok, suite.__name__)


def _begin(case):
    if case.id().endswith("test_cancel_futures"):  # wants a call to be running when it ends the pool
        case.executor.submit(int).result()


def _with_adapter(run, name):
    start = f"import sys, cpython_adapter, {name} as suite; sys.modules.setdefault('test.{name}', suite)\n"
    path = os.pathsep.join(sys.path)
    return lambda flag, code: run(flag, start + code, __isolated=False, PYTHONPATH=path)


concurrent.futures.ProcessPoolExecutor = Executor
