"""Options of `parallel_config(backend="fairtrial", ...)` (PY-54)."""

import pytest
import work
from support import is_gone, wait_until

import fairtrial as ft

joblib = pytest.importorskip("joblib")
delayed, Parallel = joblib.delayed, joblib.Parallel


@pytest.fixture(autouse=True)
def registered(nothing_is_left):
    ft.joblib.register()
    yield
    ft.joblib.shutdown()


@pytest.mark.parametrize("batch_size", [1, 2, "auto"])
def test_a_timeout_is_each_tasks_own(batch_size, gate):
    """PY-54, PY-55"""
    with joblib.parallel_config(backend="fairtrial", n_jobs=2, timeout=1):
        with pytest.raises(ft.TimedOut):
            Parallel(batch_size=batch_size)(delayed(work.pass_gate)(gate.path) for _ in range(4))
        wait_until(lambda: is_gone(gate.wait_begun()))
        assert Parallel()(delayed(work.square)(n) for n in range(50)) == [n * n for n in range(50)]


def test_tasks_that_go_together_have_their_time_together():
    """PY-54: ten of them take longer than one may"""
    with joblib.parallel_config(backend="fairtrial", n_jobs=2, timeout=3):
        assert len(Parallel(batch_size=10)(delayed(work.sleep)(0.35) for _ in range(10))) == 10


def test_an_option_that_is_not_known_is_refused():
    """PY-54, PY-8"""
    with pytest.raises(TypeError, match="'isolatio'; did you mean 'isolation'"):
        joblib.parallel_config(backend="fairtrial", n_jobs=2, isolatio="fresh")
    with pytest.raises(TypeError, match="'timeot'; did you mean 'timeout'"):
        Parallel(n_jobs=2, backend="fairtrial", timeot=3)(delayed(work.square)(n) for n in range(3))


def test_options_of_joblibs_own_are_accepted():
    """PY-54"""
    options = {"max_nbytes": "1M", "mmap_mode": "r", "temp_folder": None, "prefer": "processes", "verbose": 0}
    tasks = (delayed(work.square)(n) for n in range(3))
    assert Parallel(n_jobs=2, backend="fairtrial", isolation="fresh", **options)(tasks) == [0, 1, 4]
