"""Results on their way home."""

import pickle
from concurrent.futures.process import BrokenProcessPool, _RemoteTraceback

import pytest

import fairtrial as ft


def fail():
    raise pickle.UnpicklingError("not this")


class FailsToUnpickle:
    def __reduce__(self):
        return fail, ()


def make():
    return FailsToUnpickle()


def test_a_result_that_fails_to_unpickle_is_an_error_that_names_the_cause():
    """PY-17"""
    with ft.Executor(1) as executor:
        with pytest.raises(BrokenProcessPool) as raised:
            executor.submit(make).result()
        assert isinstance(raised.value, ft.ResultError)
        assert isinstance(raised.value.__cause__, _RemoteTraceback)
        assert "UnpicklingError: not this" in str(raised.value.__cause__)
        assert executor.submit(abs, -1).result() == 1
