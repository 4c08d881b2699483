"""Section 2 of the package's requirements: the executor."""

import concurrent.futures
import gc
import io
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures.process import BrokenProcessPool, _RemoteTraceback
from pathlib import Path

import pytest
import work
from support import WAIT_S, Gate, big, wait_until

import fairtrial as ft

# -- PY-9 to PY-11: what the standard library promises


def test_it_is_an_executor_of_the_standard_library(one):
    """PY-9"""
    assert isinstance(one, concurrent.futures.Executor)


def test_keywords_self_and_fn_reach_the_function(one):
    """PY-9"""
    assert one.submit(work.keywords, 1, self=2, fn=3).result(WAIT_S) == ((1,), {"self": 2, "fn": 3})


def test_the_function_is_positional_only(one):
    """PY-9"""
    with pytest.raises(TypeError):
        one.submit(fn=work.nothing)
    with pytest.raises(TypeError):
        one.submit()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_workers": 0}, ValueError, "max_workers must be greater than 0"),
        ({"max_workers": -1}, ValueError, "max_workers must be greater than 0"),
        ({"initializer": 3}, TypeError, "initializer must be a callable"),
        ({"max_tasks_per_child": 1.5}, TypeError, "max_tasks_per_child must be an integer"),
        ({"max_tasks_per_child": 0}, ValueError, "max_tasks_per_child must be >= 1"),
    ],
)
def test_a_bad_option_is_refused_in_the_standard_librarys_words(options, error, message):
    """PY-10"""
    with pytest.raises(error) as caught:
        ft.Executor(**options)
    assert str(caught.value) == message


def test_a_bad_chunksize_is_refused_in_the_standard_librarys_words(one):
    """PY-10"""
    with pytest.raises(ValueError) as caught:
        one.map(work.same, [1], chunksize=0)
    assert str(caught.value) == "chunksize must be >= 1."


def test_submitting_after_shutdown_is_refused_in_the_standard_librarys_words():
    """PY-10"""
    for begin in (lambda executor: None, lambda executor: executor.submit(int).result(WAIT_S)):
        executor = ft.Executor(1)
        begin(executor)
        executor.shutdown()
        with pytest.raises(RuntimeError) as caught:
            executor.submit(int)
        assert str(caught.value) == "cannot schedule new futures after shutdown"


def test_submitting_after_the_interpreters_shutdown_is_refused(program):
    """PY-10"""
    ended = program(
        """
        import atexit, fairtrial as ft
        executor = ft.Executor(1)

        @atexit.register
        def late():
            try:
                executor.submit(int)
            except RuntimeError as error:
                print(error)

        executor.submit(int).result()
        """
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        0,
        "cannot schedule new futures after interpreter shutdown\n",
        "",
    )


@pytest.mark.parametrize("name", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("form", [str, multiprocessing.get_context])
def test_a_multiprocessing_context_changes_nothing(name, form):
    """PY-11"""
    with ft.Executor(1, mp_context=form(name)) as executor:
        assert executor.submit(work.square, 3).result(WAIT_S) == 9
    if name == "fork":
        with pytest.raises(ValueError, match="incompatible with the 'fork' multiprocessing start method"):
            ft.Executor(1, mp_context=form(name), max_tasks_per_child=1)
    else:
        ft.Executor(1, mp_context=form(name), max_tasks_per_child=1)


# -- PY-12 to PY-18: what fails, and whom it concerns


@pytest.mark.parametrize(
    "error",
    [ValueError("a", 3), KeyError("k"), SystemExit(4), KeyboardInterrupt("now"), work.OwnError("mine", [1])],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_comes_back_as_itself(one, error):
    """PY-12"""
    future = one.submit(work.raise_it, error)
    with pytest.raises(type(error)) as caught:
        future.result(WAIT_S)
    assert type(caught.value) is type(error)
    assert caught.value.args == error.args
    assert type(caught.value.__cause__) is _RemoteTraceback
    assert "raise_it" in str(caught.value.__cause__)
    assert one.submit(work.square, 2).result(WAIT_S) == 4


def test_each_future_has_an_exception_of_its_own(two):
    """PY-12, cpython #101267"""
    for make in (
        lambda: two.submit(work.fail),
        lambda: two.submit(work.crash),
        lambda: two.options(timeout=0.05).submit(work.sleep),
        lambda: two.submit(work.same, work.TroubleWhenUnpickled("raise")),
    ):
        first, second = make(), make()
        assert first.exception(WAIT_S) is not second.exception(WAIT_S)
        assert first.exception() is first.exception()


def test_futures_of_a_broken_executor_have_exceptions_of_their_own(caplog):
    """PY-12, cpython #101267"""
    with caplog.at_level(logging.CRITICAL + 1, "concurrent.futures"):
        with ft.Executor(1, initializer=work.fail) as executor:
            futures = [executor.submit(int) for _ in range(3)]
            errors = [future.exception(WAIT_S) for future in futures]
    assert len({id(error) for error in errors}) == 3


@pytest.mark.parametrize(
    ("cls", "args", "message"),
    [(work.Unpicklable, ("no lock travels",), "no lock travels"), (work.Needy, ("this", "that"), "this and that")],
    ids=["not pickled", "not unpickled"],
)
def test_an_exception_that_does_not_travel_is_described(one, cls, args, message):
    """PY-13"""
    error = one.submit(work.raise_made, cls, *args).exception(WAIT_S)
    assert type(error) is ft.CandidateError
    assert cls.__name__ in str(error) and message in str(error) and "raise_made" in str(error)
    assert error.outcome.error.message == message
    assert one.submit(work.square, 2).result(WAIT_S) == 4


@pytest.mark.parametrize(
    ("function", "args", "words"), [(work.crash, (), "SIGSEGV"), (work.exit_process, (0,), "EXIT(0)")]
)
def test_a_dead_worker_fails_its_own_future_only(two, gate, function, args, words):
    """PY-14"""
    sibling = two.submit(work.pass_gate, gate.path, "fine")
    gate.wait_begun()
    error = two.submit(function, *args).exception(WAIT_S)
    assert type(error) is ft.WorkerDied and isinstance(error, BrokenProcessPool)
    assert words in str(error)
    gate.open()
    assert sibling.result(WAIT_S) == "fine"
    assert two.submit(work.square, 3).result(WAIT_S) == 9


def test_arguments_that_do_not_pickle_concern_their_own_future(one):
    """PY-15"""
    before = one.submit(work.square, 2)
    bad = one.submit(work.same, work.TroubleWhenPickled("raise"))
    after = one.submit(work.square, 3)
    with pytest.raises(ValueError, match="trouble on the way"):
        bad.result(WAIT_S)
    assert bad.done() and not bad.cancelled() and not bad.running()
    assert (before.result(WAIT_S), after.result(WAIT_S)) == (4, 9)


def test_an_exit_while_pickling_is_a_pickling_error(one):
    """PY-15"""
    error = one.submit(work.same, work.TroubleWhenPickled("exit")).exception(WAIT_S)
    assert isinstance(error, pickle.PicklingError)
    assert isinstance(error.__cause__, SystemExit)


def test_an_interrupt_while_pickling_propagates(one):
    """PY-15"""
    with pytest.raises(KeyboardInterrupt):
        one.submit(work.same, work.TroubleWhenPickled("interrupt"))
    assert one.submit(work.square, 3).result(WAIT_S) == 9


@pytest.mark.parametrize("size", [1, 100_000])
def test_what_changes_after_submit_is_not_seen(one, gate, size):
    """PY-15"""
    held = one.submit(work.pass_gate, gate.path)
    thing = [0] * size
    large = bytearray(size)
    future = one.submit(work.firsts, thing, pickle.PickleBuffer(large))
    thing[0] = large[0] = 1
    gate.open()
    held.result(WAIT_S)
    assert future.result(WAIT_S) == [0, 0]


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_arguments_that_do_not_unpickle_are_a_setup_error(one, how):
    """PY-16"""
    pid = one.submit(work.pid).result(WAIT_S)
    error = one.submit(work.same, work.TroubleWhenUnpickled(how)).exception(WAIT_S)
    assert type(error) is ft.SetupError and isinstance(error, BrokenProcessPool)
    assert type(error.__cause__) is _RemoteTraceback
    assert ("ValueError: trouble on the way" if how == "raise" else "SystemExit: 7") in str(error.__cause__)
    assert one.submit(work.pid).result(WAIT_S) == pid


def test_a_result_that_does_not_pickle_raises_that_error(one):
    """PY-17"""
    future = one.submit(work.return_trouble, "pickled", "raise")
    with pytest.raises(ValueError, match="trouble on the way"):
        future.result(WAIT_S)
    assert future.outcome().verdict == "bad_result"
    with pytest.raises(Exception, match="pickle"):
        one.submit(work.make, threading.Lock).result(WAIT_S)


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_result_that_does_not_unpickle_concerns_whoever_asks(two, how):
    """PY-17"""
    future = two.submit(work.return_trouble, "unpickled", how)
    finished = concurrent.futures.wait([future], WAIT_S).done
    assert finished == {future}
    with pytest.raises(ft.ResultError):
        future.result()
    error = future.exception()
    assert type(error) is ft.ResultError and isinstance(error, BrokenProcessPool)
    assert ("ValueError: trouble on the way" if how == "raise" else "SystemExit: 7") in str(error.__cause__)
    assert two.submit(work.square, 3).result(WAIT_S) == 9


def _trouble(executor, how, where):
    if where == "argument pickling":
        return executor.submit(work.same, work.TroubleWhenPickled(how))
    if where == "argument unpickling":
        return executor.submit(work.same, work.TroubleWhenUnpickled(how))
    if where == "run":
        return executor.submit(work.run_into, how)
    return executor.submit(work.return_trouble, where.split()[1].replace("ing", "ed"), how)


# What a crash does in the host is the host's own death: see the test that follows.
MATRIX = {
    ("exit", "argument pickling"): pickle.PicklingError,
    ("raise", "argument pickling"): ValueError,
    ("crash", "argument unpickling"): BrokenProcessPool,
    ("exit", "argument unpickling"): ft.SetupError,
    ("raise", "argument unpickling"): ft.SetupError,
    ("crash", "run"): ft.WorkerDied,
    ("exit", "run"): SystemExit,
    ("raise", "run"): ValueError,
    ("crash", "result pickling"): ft.WorkerDied,
    ("exit", "result pickling"): SystemExit,
    ("raise", "result pickling"): ValueError,
    ("exit", "result unpickling"): ft.ResultError,
    ("raise", "result unpickling"): ft.ResultError,
}


@pytest.mark.parametrize("submitted", ["plain", "from a done-callback"])
@pytest.mark.parametrize(("how", "where"), MATRIX, ids=" in ".join)
def test_trouble_anywhere_resolves_its_future_only(two, submitted, how, where):
    """PY-18"""
    before = two.submit(work.square, 4)
    if submitted == "plain":
        future = _trouble(two, how, where)
    else:
        made, ready = [], threading.Event()

        def submit(_):
            made.append(_trouble(two, how, where))
            ready.set()

        two.submit(int).add_done_callback(submit)
        assert ready.wait(WAIT_S)
        future = made[0]
    error = future.exception(WAIT_S)
    assert isinstance(error, MATRIX[how, where]), error
    with pytest.raises(MATRIX[how, where]):
        future.result(WAIT_S)
    assert before.result(WAIT_S) == 16
    assert two.submit(work.square, 5).result(WAIT_S) == 25


@pytest.mark.parametrize("where", ["argument pickling", "result unpickling"])
def test_a_crash_in_the_host_leaves_nothing(program, where):
    """PY-18: the two cells where the code that crashes runs in the host"""
    ended = program(
        f"""
        import fairtrial as ft, work, test_executor
        executor = ft.Executor(2)
        executor.submit(work.sleep)
        test_executor._trouble(executor, "crash", {where!r}).result()
        """
    )
    assert ended.returncode == -signal.SIGSEGV


# -- PY-19: size

LARGE = 2_200_000_000


def test_arguments_of_2_2_gigabytes_travel(one):
    """PY-19"""
    numpy = pytest.importorskip("numpy")
    big(8 << 30)
    array = numpy.zeros(LARGE, numpy.uint8)  # not touched, so no memory here
    array[-1] = 7
    assert one.submit(work.last_of, array).result(120) == (LARGE, 7)


def test_results_of_2_2_gigabytes_travel(one):
    """PY-19"""
    pytest.importorskip("numpy")
    big(8 << 30)
    array = one.submit(work.zeros_ending_in, LARGE, 9).result(120)
    assert (len(array), array[-1]) == (LARGE, 9)


def test_2_2_gigabytes_inside_a_pickle_travel(one):
    """PY-19: no buffer beside it"""
    big(10 << 30)
    assert one.submit(work.last_of, bytes(LARGE - 1) + b"\7").result(120) == (LARGE, 7)


@pytest.mark.parametrize("how", ["crash", "exit"])
@pytest.mark.parametrize("where", ["argument", "result pickled", "result unpickled"])
def test_a_crash_with_100_megabytes_on_the_way_hangs_nothing(two, where, how):
    """PY-19"""
    if where == "argument":
        payload = (pickle.PickleBuffer(bytearray(100 << 20)), work.TroubleWhenUnpickled(how))
        future = two.submit(work.same, payload)
    elif where == "result unpickled" and how == "crash":
        future = two.submit(work.die_while_writing, 100 << 20)
    else:
        future = two.submit(work.return_trouble, where.split()[1], how, 100 << 20)
    assert future.exception(WAIT_S) is not None
    assert two.submit(work.square, 5).result(WAIT_S) == 25


# -- PY-20 to PY-22: map, wait, as_completed


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


# -- PY-23: what is kept


def test_the_host_keeps_neither_arguments_nor_results(one):
    """PY-23"""
    thing = work.Plain()
    reference = weakref.ref(thing)
    future = one.submit(work.same, thing)
    del thing
    assert reference() is None
    result = weakref.ref(future.result(WAIT_S))
    assert result() is not None, "the future has it"
    del future
    assert result() is None


def test_a_future_that_failed_keeps_nothing_in_a_cycle(one):
    """PY-23"""
    gc.disable()
    try:
        future = one.submit(work.fail)
        try:
            future.result(WAIT_S)
        except ValueError:
            pass
        reference = weakref.ref(future)
        del future
        assert reference() is None
    finally:
        gc.enable()


def test_the_worker_keeps_neither_arguments_nor_results(one, tmp_path):
    """PY-23: no further call is made"""
    argument, result = str(tmp_path / "argument"), str(tmp_path / "result")
    one.submit(work.finalized, argument, work.Plain()).result(WAIT_S)
    wait_until(lambda: os.path.exists(argument), what="the release of the argument")
    one.submit(work.make_finalized, result).result(WAIT_S)
    wait_until(lambda: os.path.exists(result), what="the release of the result")


# -- PY-24 and PY-25: workers' beginnings and ends


def test_the_initializer_runs_once_per_worker(tmp_path):
    """PY-24"""
    log = tmp_path / "log"
    with ft.Executor(1, initializer=work.append, initargs=(str(log), "x")) as executor:
        assert executor.submit(work.read, str(log)).result(WAIT_S) == "x"
        executor.submit(work.crash).exception(WAIT_S)
        assert executor.submit(work.read, str(log)).result(WAIT_S) == "xx"
        assert executor.submit(work.read, str(log)).result(WAIT_S) == "xx"


def test_the_initializer_runs_before_each_fresh_call(tmp_path):
    """PY-24"""
    log = tmp_path / "log"
    with ft.Executor(1, isolation="fresh", initializer=work.append, initargs=(str(log), "x")) as executor:
        seen = [executor.submit(work.read, str(log)).result(WAIT_S) for _ in range(3)]
    assert seen[0] != "" and len(seen[2]) - len(seen[0]) == 2


def test_what_the_initializer_leaves_is_what_calls_find():
    """PY-24"""
    with ft.Executor(1, initializer=work.set_global, initargs=("left",)) as executor:
        assert executor.submit(work.get_global).result(WAIT_S) == "left"
        assert executor.submit(work.get_global).result(WAIT_S) == "left"


def test_a_failing_initializer_breaks_the_executor(caplog, gate):
    """PY-24"""
    with caplog.at_level(logging.CRITICAL, "concurrent.futures"):
        with ft.Executor(2, initializer=work.pass_gate_and_fail, initargs=(gate.path,)) as executor:
            futures = [executor.submit(work.square, 2) for _ in range(4)]
            gate.open()
            for future in futures:
                with pytest.raises(BrokenProcessPool):
                    future.result(WAIT_S)
            with pytest.raises(BrokenProcessPool):
                executor.submit(work.square, 3)
    records = [record for record in caplog.records if record.name == "concurrent.futures"]
    assert [record.levelno for record in records] == [logging.CRITICAL]
    assert "ValueError" in caplog.text and "pass_gate_and_fail" in caplog.text


def test_max_tasks_per_child_replaces_the_process():
    """PY-25"""
    with ft.Executor(1, max_tasks_per_child=3) as executor:
        pids = [executor.submit(work.pid).result(WAIT_S) for _ in range(7)]
    assert len(set(pids[:3])) == len(set(pids[3:6])) == 1
    assert len({pids[0], pids[3], pids[6]}) == 3


def test_calls_complete_when_a_shutdown_follows_at_once():
    """PY-25"""
    executor = ft.Executor(3, max_tasks_per_child=1)
    futures = [executor.submit(work.pid) for _ in range(6)]
    executor.shutdown()
    assert len({future.result(0) for future in futures}) == 6


# -- PY-26 and PY-27: its end


def test_shutdown_waits_and_may_be_repeated(gate):
    """PY-26"""
    executor = ft.Executor(1)
    futures = [executor.submit(work.pass_gate, gate.path, 1), executor.submit(work.square, 2)]
    gate.wait_begun()
    executor.shutdown(wait=False)
    assert not futures[0].done()
    gate.open()
    executor.shutdown()
    executor.shutdown(wait=True, cancel_futures=True)
    assert [future.result(0) for future in futures] == [1, 4]


def test_shutdown_before_the_first_call_is_fine():
    """PY-26"""
    ft.Executor(1).shutdown()
    with ft.Executor(1):
        pass


def test_shutdown_cancels_queued_calls_if_told_to(gate):
    """PY-26"""
    executor = ft.Executor(1)
    running = executor.submit(work.pass_gate, gate.path, "done")
    gate.wait_begun()
    queued = [executor.submit(work.square, 2) for _ in range(3)]
    executor.shutdown(wait=False, cancel_futures=True)
    concurrent.futures.wait(queued, WAIT_S)
    gate.open()
    executor.shutdown()
    assert running.result(0) == "done"
    assert all(future.cancelled() for future in queued)


def test_shutdown_kills_what_runs_too_long():
    """PY-26"""
    executor = ft.Executor(1)
    running, queued = executor.submit(work.sleep), executor.submit(work.square, 2)
    executor.shutdown(kill_after=0.2)
    for future in (running, queued):
        with pytest.raises(ft.Cancelled):
            future.result(0)


def test_shutdown_may_be_called_from_a_done_callback():
    """PY-26"""
    executor, ended = ft.Executor(1), threading.Event()

    def end(_):
        executor.shutdown()
        ended.set()

    executor.submit(int).add_done_callback(end)
    assert ended.wait(WAIT_S)
    executor.shutdown()


def test_submit_cancel_shutdown_does_not_hang():
    """PY-26, cpython gh-94440"""
    for wait in (True, False):
        executor = ft.Executor(1)
        executor.submit(int).cancel()
        executor.shutdown(wait=wait)
        executor.shutdown()


def test_a_dropped_executor_finishes_its_work(gate):
    """PY-27"""
    executor = ft.Executor(1)
    futures = [executor.submit(work.pass_gate, gate.path, "done"), executor.submit(work.square, 3)]
    gate.wait_begun()
    del executor
    gc.collect()
    gate.open()
    assert [future.result(WAIT_S) for future in futures] == ["done", 9]


def test_a_dropped_executor_without_futures_finishes_its_work(tmp_path):
    """PY-27"""
    ft.Executor(1).submit(work.touch, str(tmp_path / "done"))
    gc.collect()
    wait_until((tmp_path / "done").exists)


# -- PY-28 and PY-29: threads


def test_callbacks_run_on_one_thread(two):
    """PY-28"""
    threads, all_ran = [], threading.Event()

    def callback(_):
        threads.append(threading.get_ident())
        if len(threads) == 20:
            all_ran.set()

    gate_free = [two.submit(work.sleep, 0.02) for _ in range(20)]
    for future in gate_free:
        future.add_done_callback(callback)
    assert all_ran.wait(WAIT_S)
    assert len(set(threads) - {threading.get_ident()}) == 1


@pytest.mark.parametrize("how", [work.fail, work.exit_python])
def test_a_callback_that_fails_is_logged_and_hinders_nobody(two, gate, caplog, how):
    """PY-28"""
    ran = threading.Event()
    future = two.submit(work.pass_gate, gate.path)
    future.add_done_callback(how)
    future.add_done_callback(lambda _: ran.set())
    with caplog.at_level(logging.ERROR, "concurrent.futures"):
        gate.open()
        assert ran.wait(WAIT_S)
    assert "exception calling callback" in caplog.text
    assert two.submit(work.square, 3).result(WAIT_S) == 9


def test_a_callback_that_blocks_delays_neither_calls_nor_deadlines(two):
    """PY-28"""
    blocked, free = threading.Event(), threading.Event()

    def block(_):
        blocked.set()
        free.wait(WAIT_S)

    try:
        two.submit(int).add_done_callback(block)
        assert blocked.wait(WAIT_S)
        assert list(two.map(work.square, range(20))) == [x * x for x in range(20)]
        late = two.options(timeout=0.1).submit(work.sleep)
        assert isinstance(late.exception(WAIT_S), ft.TimedOut)
        assert len(list(concurrent.futures.as_completed([two.submit(int) for _ in range(10)], WAIT_S))) == 10
    finally:
        free.set()


def test_callbacks_submit_100_deep(two):
    """PY-28"""
    depth, ended = [], threading.Event()

    def again(future):
        depth.append(future.result())
        if len(depth) == 100:
            ended.set()
        else:
            two.submit(work.same, len(depth)).add_done_callback(again)

    two.submit(work.same, 0).add_done_callback(again)
    assert ended.wait(WAIT_S)
    assert depth == list(range(100))


def test_ten_threads_may_submit_at_once():
    """PY-29"""
    results = {}
    with ft.Executor(2) as executor:

        def submit(number):
            futures = [executor.submit(work.add, number, item) for item in range(50)]
            results[number] = [future.result(WAIT_S) for future in futures]

        threads = [threading.Thread(target=submit, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    assert results == {number: [number + item for item in range(50)] for number in range(10)}


def test_executors_nest(one):
    """PY-29"""
    assert one.submit(work.square_nested, [1, 2, 3]).result(WAIT_S) == [1, 4, 9]


def test_multiprocessing_works_in_a_worker(one):
    """PY-29"""
    assert one.submit(work.use_multiprocessing, [1, 2, 3]).result(WAIT_S) == [1, 4, 9]


@pytest.mark.parametrize("isolation", ["reuse", "fresh"])
def test_a_worker_is_not_the_main_process(isolation):
    """PY-29"""
    with ft.Executor(1, isolation=isolation) as executor:
        assert executor.submit(work.process_name).result(WAIT_S) != "MainProcess"


# -- PY-30 and PY-31: what workers have of their host


@pytest.mark.parametrize("isolation", ["reuse", "fresh"])
def test_workers_have_their_hosts_path_arguments_and_directory(isolation, tmp_path, monkeypatch):
    """PY-30"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["a program", "--flag"])
    monkeypatch.syspath_prepend(str(tmp_path / "more"))
    with ft.Executor(1, isolation=isolation) as executor:
        found = executor.submit(work.surroundings).result(WAIT_S)
    assert found["argv"] == ["a program", "--flag"]
    assert found["cwd"] == str(tmp_path)
    assert found["path"] == [entry or str(tmp_path) for entry in sys.path]


def test_a_module_made_since_is_found(one, tmp_path, monkeypatch):
    """PY-30"""
    assert one.submit(int).result(WAIT_S) == 0
    (tmp_path / "made_later.py").write_text("def f(): return 'found'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import made_later

    try:
        assert one.submit(made_later.f).result(WAIT_S) == "found"
    finally:
        del sys.modules["made_later"]


def test_a_script_needs_no_main_guard(program):
    """PY-30"""
    ended = program(
        """
        import sys
        import fairtrial as ft
        print("begun", flush=True)

        class Point:
            def __init__(self, x): self.x = x
            def moved(self): return Point(self.x + 1)

        def double(x): return x * FACTOR

        FACTOR = 2
        executor = ft.Executor(2)
        print(executor.submit(double, 4).result())
        FACTOR = 3
        print(executor.submit(double, 4).result())

        def double(x): return "redefined"

        print(executor.submit(double, 4).result())
        print(executor.submit(lambda: FACTOR).result())
        back = executor.submit(Point.moved, Point(1)).result()
        print(type(back) is Point, back.x)
        print(executor.submit(lambda: __name__).result())

        class Own(Exception): pass
        def fail(): raise Own("mine")
        try:
            executor.submit(fail).result()
        except Own as error:
            print("caught", error)
        """
    )
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["begun", "8", "12", "redefined", "3", "True 2", "__main__", "caught mine"]


def test_the_registry_of_what_travels_by_value_does_not_grow(program):
    """PY-30"""
    ended = program(
        """
        import cloudpickle, fairtrial as ft
        from cloudpickle import cloudpickle as inner

        class Own: pass
        def sizes(thing):
            from cloudpickle import cloudpickle as inner
            return len(inner._DYNAMIC_CLASS_TRACKER_BY_ID), len(inner._PICKLE_BY_VALUE_MODULES)

        with ft.Executor(1) as executor:
            first = executor.submit(sizes, Own()).result()
            for _ in range(100):
                last = executor.submit(sizes, Own()).result()
            here = len(inner._DYNAMIC_CLASS_TRACKER_BY_ID), len(inner._PICKLE_BY_VALUE_MODULES)
            print(first == last, here[0] <= 1, here[1])
        """
    )
    assert (ended.stdout, ended.stderr) == ("True True 0\n", "")


def test_python_is_the_hosts_own_unless_named(one):
    """PY-31"""
    assert one.submit(work.executable).result(WAIT_S) == sys.executable
    with ft.Executor(1, python=sys.executable) as executor:
        assert executor.submit(work.executable).result(WAIT_S) == sys.executable


def _other_python():
    found = [str(path) for path in Path(sys.base_prefix).parent.glob("3.*/bin/python3")]
    found += ["/usr/bin/python3", "/usr/local/bin/python3"]
    ask = "import sys; sys.exit(sys.version_info[1] == int(sys.argv[1]))"
    for path in found:
        if os.access(path, os.X_OK):
            if subprocess.run([path, "-c", ask, str(sys.version_info[1])], capture_output=True).returncode == 0:
                return path
    return None


def test_a_python_that_cannot_serve_is_refused(tmp_path):
    """PY-31"""
    with pytest.raises(ValueError, match="empty"):
        ft.Executor(1, python="")
    with pytest.raises(ValueError, match="no interpreter"):
        ft.Executor(1, python="/nowhere/python")
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.7\n")
    other.chmod(0o755)
    with pytest.raises(ValueError, match="is Python 3.7"):
        ft.Executor(1, python=other)


def test_a_real_python_of_another_version_is_refused():
    """PY-31"""
    other = _other_python()
    if other is None:
        pytest.skip("no other CPython found")
    with pytest.raises(ValueError, match="pickled for"):
        ft.Executor(1, python=other)


# -- PY-32: output


def test_output_is_echoed_to_the_descriptors(program):
    """PY-32"""
    ended = program(
        """
        import fairtrial as ft, work
        with ft.Executor(1) as executor:
            executor.submit(work.say, "to stdout").result()
            executor.submit(work.say, "to stderr", True).result()
            executor.submit(work.write, "by descriptor").result()
        """
    )
    assert (ended.stdout, ended.stderr) == ("to stdout\nby descriptor", "to stderr\n")


def test_output_is_echoed_as_it_arrives(program, tmp_path):
    """PY-32"""
    gate = Gate(tmp_path / "gate")
    host = program.start(
        """
        import sys, fairtrial as ft, work
        with ft.Executor(1) as executor:
            executor.submit(work.say_and_pass_gate, "early", sys.argv[1]).result()
        """,
        gate.path,
    )
    assert host.stdout.readline() == "early\n"
    gate.open()
    assert host.wait(WAIT_S) == 0


def test_output_is_echoed_to_replaced_streams(monkeypatch):
    """PY-32: as in a notebook"""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with ft.Executor(1) as executor:
        executor.submit(work.say, "to stdout").result(WAIT_S)
        executor.submit(work.say, "to stderr", True).result(WAIT_S)
    assert (out.getvalue(), err.getvalue()) == ("to stdout\n", "to stderr\n")


def test_output_is_in_the_outcome_too(one, capfd):
    """PY-32"""
    future = one.submit(work.say, "heard")
    assert future.outcome(WAIT_S).stdout == "heard\n"


def test_run_and_backends_do_not_echo(capfd):
    """PY-32"""
    call = ft.Call(source="def f(): print('secret')", function="f")
    assert ft.run(call).stdout == "secret\n"
    with ft.LocalBackend() as backend:
        assert backend.execute(call).stdout == "secret\n"
    with ft.Executor(1, echo=False) as executor:
        assert executor.submit(work.say, "secret").outcome(WAIT_S).stdout == "secret\n"
    assert capfd.readouterr() == ("", "")


def test_stdin_is_empty(one):
    """PY-32"""
    assert one.submit(work.read_stdin).result(WAIT_S) == ("", b"")


@pytest.mark.parametrize(("value", "is_on"), [(None, True), ("1", True), ("0", False)])
def test_faulthandler_is_on_unless_told_otherwise(monkeypatch, value, is_on):
    """PY-32"""
    if value is None:
        monkeypatch.delenv("PYTHONFAULTHANDLER", raising=False)
    else:
        monkeypatch.setenv("PYTHONFAULTHANDLER", value)
    with ft.Executor(1, echo=False) as executor:
        assert executor.submit(work.is_faulthandler_on).result(WAIT_S) is is_on
        crashed = executor.submit(work.crash).outcome(WAIT_S)
        assert ("Segmentation fault" in crashed.stderr) is is_on


# -- PY-33: options


def test_options_share_the_slots(one, gate):
    """PY-33"""
    other = one.options(timeout=30)
    held = one.submit(work.pass_gate, gate.path)
    gate.wait_begun()
    waiting = other.submit(work.square, 3)
    assert not waiting.running() and not waiting.done()
    gate.open()
    assert waiting.result(WAIT_S) == 9
    assert held.result(WAIT_S) is None


def test_options_change_only_what_they_name(one, capfd):
    """PY-33"""
    strict = one.options(timeout=0.1, limits=ft.Limits(output=100), echo=False)
    assert strict.submit(work.sleep).outcome(WAIT_S).verdict == "timeout"
    assert strict.submit(work.write, "x" * 5000).outcome(WAIT_S).verdict == "output_limit"
    assert one.submit(work.sleep, 0.2).result(WAIT_S) == 0.2
    assert one.options(isolation="fresh").submit(work.pid).result(WAIT_S) != one.submit(work.pid).result(WAIT_S)
    assert capfd.readouterr().out == ""


def test_unknown_options_are_refused_with_the_nearest_name(one):
    """PY-33, PY-8"""
    with pytest.raises(TypeError, match="did you mean 'timeout'"):
        one.options(timeuot=1)
    with pytest.raises(TypeError, match="did you mean 'max_workers'"):
        ft.Executor(max_worker=1)
    with pytest.raises(ValueError, match="timeout"):
        one.options(timeout=-1)


def test_the_environment_is_an_allow_list_unless_inherited(monkeypatch):
    """PY-33"""
    monkeypatch.setenv("FT_TEST_SECRET", "secret")
    monkeypatch.setenv("LC_FT_TEST", "passed on")
    names = ("FT_TEST_SECRET", "LC_FT_TEST", "FT_TEST_ADDED")
    with ft.Executor(1) as executor:
        assert executor.submit(work.getenv, *names).result(WAIT_S) == [None, "passed on", None]
        added = executor.options(env={"FT_TEST_ADDED": "more"})
        assert added.submit(work.getenv, *names).result(WAIT_S) == [None, "passed on", "more"]
        unset = executor.options(env={"LC_FT_TEST": None})
        assert unset.submit(work.getenv, *names).result(WAIT_S) == [None, None, None]
        inherited = executor.options(env="inherit")
        assert inherited.submit(work.getenv, *names).result(WAIT_S) == ["secret", "passed on", None]
        assert executor.submit(work.getenv, *names).result(WAIT_S) == [None, "passed on", None]


def test_a_mapping_can_be_limits(one):
    """PY-33, PY-8"""
    assert one.options(limits={"output_bytes": 10}).submit(work.write, "x" * 99).outcome(WAIT_S).verdict == (
        "output_limit"
    )
