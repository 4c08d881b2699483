"""Section 2 of the package's requirements: the executor, from its options to its end."""

import concurrent.futures
import gc
import logging
import multiprocessing
import os
import threading
import weakref
from concurrent.futures.process import BrokenProcessPool

import pytest
import work
from support import WAIT_S, wait_until

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
