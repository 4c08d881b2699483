"""Children of a call that have an interpreter of their own."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from shim_case import ShimCase, on_every_interpreter  # noqa: E402

POOL = """
import multiprocessing

def square(x):
    return x * x

def f(kind):
    with multiprocessing.get_context(kind).Pool(2) as pool:
        return pool.map_async(square, range(3)).get(60)
"""
FUTURES = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

@dataclass
class Point:
    x: int

def double(point):
    if point.x < 0:
        raise ValueError("negative")
    return Point(point.x * 2)

def f(kind):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(kind)) as pool:
        points = [point.x for point in pool.map(double, [Point(1), Point(2)], timeout=60)]
        return points, repr(pool.submit(double, Point(-1)).exception(60))
"""
NESTED = """
import multiprocessing

def leaf(queue):
    queue.put(__name__)

def branch(queue):
    child = multiprocessing.get_context("spawn").Process(target=leaf, args=(queue,))
    child.start()
    child.join(60)

def f():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=branch, args=(queue,))
    child.start()
    return queue.get(timeout=60)
"""


class Spawning(ShimCase):
    def test_children_of_a_pool_find_a_function_of_the_source(self):
        """RE-14, PY-29"""
        for kind in ("fork", "spawn", "forkserver"):
            self.assertEqual(self.run_source(POOL, kind).value, [0, 1, 4], kind)

    def test_a_preloaded_multiprocessing_finds_it_too(self):
        """RE-14, PY-29"""
        zygote = self.zygote_with("multiprocessing.spawn")
        self.assertEqual(zygote.worker().source(POOL, "spawn").value, [0, 1, 4])

    def test_classes_and_errors_travel_both_ways(self):
        """RE-14, PY-29"""
        for kind in ("spawn", "forkserver"):
            self.assertEqual(self.run_source(FUTURES, kind).value, ([2, 4], "ValueError('negative')"))

    def test_a_child_of_a_child_finds_it_too(self):
        """RE-14, PY-29"""
        self.assertEqual(self.run_source(NESTED).value, "__candidate__")

    def test_each_call_of_a_reused_worker_sends_its_own_source(self):
        """RE-14, PY-29"""
        worker = self.worker()
        other = POOL.replace("x * x", "x + 10")
        for source, expected in ((POOL, [0, 1, 4]), (other, [10, 11, 12]), (POOL, [0, 1, 4])):
            self.assertEqual(worker.source(source, "spawn", reuse=True).value, expected)

    def test_what_a_child_could_not_find_is_an_exception_at_once(self):
        """RE-14, PY-29"""
        source = POOL.replace("square, range(3)", "lambda x: x, range(3)")
        self.assertRegex(self.error_of(source, "spawn")["type"], "PicklingError|AttributeError")


globals().update(on_every_interpreter(Spawning))
del Spawning  # it has no interpreter of its own


if __name__ == "__main__":
    unittest.main()
