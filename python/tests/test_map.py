"""`Executor.map`."""

import time

import pytest

import fairtrial as ft


def write(path):
    time.sleep(0.05)
    path.write_text("done")


def test_a_map_whose_results_are_dropped_still_runs(tmp_path):
    """PY-20"""
    paths = [tmp_path / str(number) for number in range(10)]
    with ft.Executor(2) as executor:
        executor.map(write, paths)
    assert all(path.exists() for path in paths)


def test_a_map_that_is_left_half_way_cancels_what_has_not_begun(tmp_path):
    """PY-20"""
    paths = [tmp_path / str(number) for number in range(50)]
    with ft.Executor(2) as executor:
        for _ in executor.map(write, paths):
            break
    assert not all(path.exists() for path in paths)


def numbers():
    yield 1
    raise LookupError("no more")


def test_an_error_of_the_iterable_is_raised_by_map(recwarn):
    """PY-20"""
    with ft.Executor(1) as executor, pytest.raises(LookupError):
        executor.map(abs, numbers())
    assert not recwarn.list
