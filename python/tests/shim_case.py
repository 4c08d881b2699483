"""What the tests of the shim share: a case with a zygote of one interpreter, and a class for each interpreter.

Run them with `python -m unittest` or pytest; FAIRTRIAL_TEST_PYTHONS names the interpreters, FAIRTRIAL_TEST_NUMPY one
that has numpy.
"""

import os
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

from shim_harness import Zygote, interpreters


def dedent(text):
    return textwrap.dedent(text).strip("\n") + "\n"


class ShimCase:
    """Facts that hold on every interpreter: see `on_every_interpreter`."""

    python = None

    @classmethod
    def setUpClass(cls):
        cls.zygote = Zygote(cls.python)
        assert cls.zygote.ready, cls.zygote.error or cls.zygote.errors()

    @classmethod
    def tearDownClass(cls):
        cls.zygote.end()

    def worker(self):
        worker = self.zygote.worker()
        self.addCleanup(self.dismiss, worker)
        return worker

    def dismiss(self, worker):
        worker.end()
        worker.zygote.workers.remove(worker)

    def directory(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        return os.path.realpath(directory.name)

    def run_source(self, source, *args, **header):
        return self.worker().source(dedent(source), *args, **header)

    def error_of(self, source, *args, **header):
        return self.run_source(source, *args, **header).error

    def zygote_with(self, *preload, env=None):
        zygote = Zygote(self.python, preload, env)
        self.addCleanup(zygote.end)
        return zygote


def on_every_interpreter(facts):
    """A test case for each interpreter that was found, by its name."""
    cases = {}
    for python in interpreters():
        name = facts.__name__ + "_" + Path(python).resolve().name.replace(".", "_").replace("-", "_")
        cases[name] = type(name, (facts, unittest.TestCase), {"python": python, "__module__": facts.__module__})
    if not cases:
        print("no CPython from 3.8 on found: the shim is not tested", file=sys.stderr)
    return cases
