"""PY-12 to PY-19: calls that fail on their way, and calls of great size."""

import concurrent.futures
import logging
import pickle
import signal
import threading
from concurrent.futures.process import BrokenProcessPool, _RemoteTraceback

import pytest
import work
from support import WAIT_S, big

import fairtrial as ft

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
        import fairtrial as ft, work, test_executor_failures
        executor = ft.Executor(2)
        executor.submit(work.sleep)
        test_executor_failures._trouble(executor, "crash", {where!r}).result()
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
