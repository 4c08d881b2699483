"""PY-20 to PY-22: `map`, and the standard library's `wait` and `as_completed`."""

import concurrent.futures
import io
import threading
import time
import weakref

import pytest
import work
from support import WAIT_S, Gate, big

import fairtrial as ft


def test_map_submits_at_once_and_yields_in_order(two, gate):
    """PY-20"""
    taken = []

    def items():
        for item in range(10):
            taken.append(item)
            yield item

    results = two.map(work.square, items())
    assert taken == list(range(10))
    assert list(results) == [item * item for item in range(10)]
    assert list(two.map(work.add, [1, 2, 3], [10, 20])) == [11, 22]


def test_map_with_buffersize_submits_so_many_ahead(two):
    """PY-20"""
    taken = []

    def items():
        for item in range(10):
            taken.append(item)
            yield item

    results = two.map(work.square, items(), buffersize=3)
    assert taken == [0, 1, 2]
    assert next(results) == 0
    assert taken == [0, 1, 2, 3]
    assert list(results) == [1, 4, 9, 16, 25, 36, 49, 64, 81]


@pytest.mark.parametrize(("size", "error"), [(0, ValueError), (-1, ValueError), ("3", TypeError), (1.0, TypeError)])
def test_a_bad_buffersize_is_refused(one, size, error):
    """PY-20"""
    with pytest.raises(error, match="buffersize"):
        one.map(work.same, [1], buffersize=size)


def test_the_timeout_of_map_counts_from_its_call(one, gate):
    """PY-20"""
    results = one.map(work.pass_gate, [gate.path, gate.path], timeout=0.2)
    gate.wait_begun()
    began = time.monotonic()
    with pytest.raises(concurrent.futures.TimeoutError):
        next(results)
    assert time.monotonic() - began < WAIT_S / 2
    gate.open()


def test_a_timeout_of_zero_takes_only_what_is_there(one, gate):
    """PY-20"""
    with pytest.raises(concurrent.futures.TimeoutError):
        list(one.map(work.pass_gate, [gate.path], timeout=0))
    gate.open()


def test_map_keeps_no_reference_to_what_it_yielded(one):
    """PY-20, PY-23"""
    results = one.map(work.make, [work.Plain] * 3)
    for result in results:
        reference = weakref.ref(result)
        del result
        assert reference() is None


def test_closing_maps_iterator_cancels_what_has_not_begun(one, gates):
    """PY-20"""
    made = [gates(), gates(), gates()]
    results = one.map(work.pass_gate, [gate.path for gate in made], ["first", "second", "third"])
    made[0].wait_begun()
    results.close()
    for gate in made:
        gate.open()
    assert one.submit(work.square, 2).result(WAIT_S) == 4
    assert made[0].begun and not made[1].begun and not made[2].begun


def test_an_error_in_map_cancels_what_has_not_begun(one, gate):
    """PY-20"""
    later = Gate(gate.path + "later")
    later.open()
    results = one.map(work.raise_or_pass, [gate.path, later.path], [True, False])
    gate.open()
    with pytest.raises(ValueError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_a_chunk_does_not_fail_as_a_whole(one):
    """PY-21"""
    results = one.map(work.exit_if, [0, 0, 3, 0], chunksize=4)
    assert [next(results), next(results)] == [0, 0]
    with pytest.raises(ft.WorkerDied, match=r"EXIT\(3\)"):
        next(results)


def test_each_item_of_a_chunk_has_its_own_deadline():
    """PY-21"""
    with ft.Executor(1, timeout=1.0) as executor:
        assert list(executor.map(work.sleep, [0.3] * 5, chunksize=5)) == [0.3] * 5


def test_each_item_of_a_chunk_has_its_own_outcome(two):
    """PY-21"""
    assert list(two.map(work.square, range(100), chunksize=7)) == [x * x for x in range(100)]


def test_wait_of_the_standard_library_works(two, gate):
    """PY-22"""
    quick, held = two.submit(work.square, 2), two.submit(work.pass_gate, gate.path)
    done, pending = concurrent.futures.wait([quick, held], WAIT_S, concurrent.futures.FIRST_COMPLETED)
    assert (done, pending) == ({quick}, {held})
    failing = two.submit(work.fail)
    done, pending = concurrent.futures.wait([failing, held], WAIT_S, concurrent.futures.FIRST_EXCEPTION)
    assert (done, pending) == ({failing}, {held})
    assert concurrent.futures.wait([held], 0.01).not_done == {held}
    gate.open()
    assert ft.wait([quick, held, failing], WAIT_S).not_done == set()


def test_as_completed_yields_as_futures_finish(two, gates):
    """PY-22"""
    first, second = gates(), gates()
    futures = {
        two.submit(work.pass_gate, first.path): "first",
        two.submit(work.pass_gate, second.path): "second",
    }
    completed = concurrent.futures.as_completed(futures, WAIT_S)
    second.open()
    assert futures[next(completed)] == "second"
    first.open()
    assert futures[next(completed)] == "first"
    with pytest.raises(concurrent.futures.TimeoutError):
        never = gates()
        list(ft.as_completed([two.submit(work.pass_gate, never.path)], 0.01))


def _seconds_of_as_completed(executor, count):
    futures = [executor.submit(int) for _ in range(count)]
    began = time.monotonic()
    assert sum(1 for _ in concurrent.futures.as_completed(futures, 120)) == count
    return time.monotonic() - began


def test_as_completed_takes_linear_time(two):
    """PY-22: ten times the futures; in quadratic time it were a hundred times the seconds."""
    big(1 << 30)
    _seconds_of_as_completed(two, 1000)
    few = _seconds_of_as_completed(two, 10_000)
    many = _seconds_of_as_completed(two, 100_000)
    assert many < 40 * max(few, 0.1)


def test_tqdm_advances_with_each_result(one, gates):
    """PY-22"""
    tqdm = pytest.importorskip("tqdm").tqdm
    tqdm.monitor_interval = 0  # it would start a thread that stays,
    tqdm.set_lock(threading.RLock())  # and make a semaphore for processes
    first, second = gates(), gates()
    with tqdm(
        one.map(work.pass_gate, [first.path, second.path]), total=2, file=io.StringIO(), mininterval=0, miniters=1
    ) as bar:
        results = iter(bar)
        first.open()
        next(results)
        second.wait_begun()
        assert bar.n in (0, 1)  # it counts when it is asked for the next
        second.open()
        next(results)
        assert bar.n >= 1
        with pytest.raises(StopIteration):
            next(results)
        assert bar.n == 2
