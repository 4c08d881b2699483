"""Section 8 of the package's requirements: joblib."""

import multiprocessing
import os
import threading
import warnings

import pytest
import work
from support import WAIT_S, is_gone, wait_until

import fairtrial as ft

joblib = pytest.importorskip("joblib")
delayed, Parallel = joblib.delayed, joblib.Parallel


@pytest.fixture(autouse=True)
def fairtrial_backend(nothing_is_left):
    """The backend for all tests of this file, and nothing of it afterwards."""
    ft.joblib.register()
    with joblib.parallel_config(backend="fairtrial", n_jobs=2):
        yield
    ft.joblib.shutdown()


def squares(numbers, **options):
    return Parallel(**options)(delayed(work.square)(n) for n in numbers)


def test_a_parallel_call_gives_results_in_order():
    """PY-54"""
    assert squares(range(20)) == [n * n for n in range(20)]
    assert os.getpid() not in Parallel()(delayed(work.pid)(n) for n in range(4))


@pytest.mark.parametrize(("n_jobs", "workers"), [(2, 2), (3, 3), (-1, None), (-2, None)])
def test_n_jobs_says_how_many_run_at_once(n_jobs, workers):
    """PY-54"""
    processors = len(os.sched_getaffinity(0))
    expected = workers or max(processors + 1 + n_jobs, 1)
    backend = ft.joblib.FairtrialBackend(nesting_level=0)
    assert backend.effective_n_jobs(n_jobs) == expected
    assert squares(range(5), n_jobs=n_jobs) == [0, 1, 4, 9, 16]


def test_zero_jobs_mean_nothing():
    """PY-54"""
    with pytest.raises(ValueError, match="n_jobs == 0"):
        squares([1], n_jobs=0)


def test_so_many_tasks_run_at_once(gates):
    """PY-54"""
    held = [gates(), gates(), gates()]

    def watch():
        for gate in held:
            gate.wait_begun()
        for gate in held:
            gate.open()

    thread = threading.Thread(target=watch)
    thread.start()
    assert Parallel(n_jobs=3)(delayed(work.pass_gate)(gate.path, "ran") for gate in held) == ["ran"] * 3
    thread.join(WAIT_S)


@pytest.mark.parametrize("batch_size", [1, 3, "auto"])
def test_batch_size_groups_tasks(batch_size):
    """PY-54"""
    assert squares(range(30), batch_size=batch_size) == [n * n for n in range(30)]


@pytest.mark.parametrize("return_as", ["list", "generator", "generator_unordered"])
def test_results_come_as_asked_for(return_as):
    """PY-54"""
    results = squares(range(10), return_as=return_as)
    assert (return_as == "list") == isinstance(results, list)
    results = list(results)
    assert (sorted(results) if "unordered" in return_as else results) == [n * n for n in range(10)]


def test_a_generator_yields_before_all_is_done(gates):
    """PY-54"""
    first, second = gates(), gates()
    results = Parallel(return_as="generator")(delayed(work.pass_gate)(gate.path, gate.path) for gate in (first, second))
    first.open()
    assert next(results) == first.path
    second.open()
    assert next(results) == second.path
    assert list(results) == []


@pytest.mark.parametrize(("given", "expected"), [(1, "1"), (3, "3")])
def test_inner_threads_are_capped(given, expected):
    """PY-54"""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    with joblib.parallel_config(backend="fairtrial", n_jobs=2, inner_max_num_threads=given):
        found = Parallel()(delayed(work.getenv)(*names) for _ in range(2))
    assert found == [[expected] * 3] * 2


def test_options_of_an_executor_can_be_given():
    """PY-54"""
    with joblib.parallel_config(backend="fairtrial", n_jobs=2, env={"FT_TEST": "given"}, isolation="fresh"):
        assert Parallel()(delayed(work.getenv)("FT_TEST") for _ in range(2)) == [["given"]] * 2
        assert len(set(Parallel(batch_size=1)(delayed(work.pid)() for _ in range(4)))) == 4


def test_parallel_calls_nest():
    """PY-54: below two levels of parallel calls tasks run one after the other"""
    assert Parallel()(delayed(work.nested_squares)(n, 3) for n in range(3)) == [
        work.nested_expected(n, 3) for n in range(3)
    ]


@pytest.mark.parametrize("how", ["Parallel", "parallel_config"])
@pytest.mark.parametrize("isolation", ["reuse", "fresh"])
def test_a_task_may_nest_the_backend_by_name(how, isolation):
    """PY-54: nobody registered it in the worker; the third level is below those that run in parallel"""
    with joblib.parallel_config(backend="fairtrial", n_jobs=2, isolation=isolation):
        for _ in range(2):  # a worker's own workers serve its next task too
            assert Parallel(batch_size=1)(delayed(work.nested_squares_by_name)(n, 3, how) for n in range(3)) == [
                work.nested_expected(n, 3) for n in range(3)
            ]


def test_what_a_task_nests_by_name_runs_in_processes_of_its_own():
    """PY-54"""
    for worker, nested in Parallel(batch_size=1)(delayed(work.nested_pids)(4) for _ in range(2)):
        assert not {worker, os.getpid()} & set(nested)


def test_a_call_with_a_timeout_fails_in_time(gate):
    """PY-54"""
    squares(range(4), batch_size=1)  # workers are there
    with pytest.raises(multiprocessing.TimeoutError):
        Parallel(timeout=1.0)(delayed(work.pass_gate)(gate.path) for _ in range(2))
    wait_until(lambda: is_gone(gate.wait_begun()), what="the end of the task")
    assert squares([3]) == [9]


def test_a_tasks_exception_is_raised():
    """PY-55"""
    with pytest.raises(ValueError, match="on purpose"):
        Parallel()(delayed(work.fail)() for _ in range(3))
    assert squares([1, 2]) == [1, 4]


def test_a_crash_fails_its_call_and_kills_its_siblings_only(gates):
    """PY-55"""
    sibling, other = gates(), gates()
    results = []

    def another_call():
        with joblib.parallel_config(backend="fairtrial", n_jobs=2):
            results.extend(Parallel()(delayed(work.pass_gate)(other.path, n) for n in range(2)))

    thread = threading.Thread(target=another_call)
    thread.start()
    other.wait_begun()
    with pytest.raises(ft.WorkerDied, match="SIGSEGV"):
        Parallel(batch_size=1)(
            [delayed(work.pass_gate)(sibling.path), delayed(work.crash_when)(sibling.path + ".begun")]
        )
    wait_until(lambda: is_gone(sibling.wait_begun()), what="the end of the sibling")
    assert squares([5, 6]) == [25, 36]
    other.open()
    thread.join(WAIT_S)
    assert results == [0, 1]


def test_the_next_call_finds_the_same_workers():
    """PY-55"""
    first = set(Parallel(batch_size=1)(delayed(work.pid)() for _ in range(10)))
    second = set(Parallel(batch_size=1)(delayed(work.pid)() for _ in range(10)))
    assert first & second


def test_a_managed_backend_survives_an_error(gate):
    """PY-55"""
    with Parallel(n_jobs=2) as parallel:
        with pytest.raises(ft.WorkerDied):
            parallel(delayed(work.crash)() for _ in range(2))
        assert parallel(delayed(work.square)(n) for n in range(3)) == [0, 1, 4]


def test_an_abandoned_generator_kills_its_tasks(gate):
    """PY-55"""
    results = Parallel(return_as="generator", batch_size=1)(
        [delayed(work.square)(3), delayed(work.pass_gate)(gate.path)]
    )
    assert next(results) == 9
    pid = gate.wait_begun()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results.close()
    wait_until(lambda: is_gone(pid), what="the end of the task")


def test_main_functions_travel(program):
    """PY-54"""
    ended = program(
        """
        import joblib, fairtrial as ft
        ft.joblib.register()
        factor = 3
        def scaled(x): return x * factor
        with joblib.parallel_config(backend="fairtrial", n_jobs=2):
            print(joblib.Parallel()(joblib.delayed(scaled)(n) for n in range(3)))
            print(joblib.Parallel()(joblib.delayed(lambda x: x + factor)(n) for n in range(3)))
        """
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[0, 3, 6]\n[3, 4, 5]\n", "")
