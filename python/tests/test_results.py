"""Results on their way home."""

import dataclasses
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


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """Has no fields: with one, pickle itself could not make it again."""


def freeze():
    raise Frozen()


def test_an_exception_that_is_a_frozen_dataclass_arrives_with_its_cause():
    """PY-12"""
    with ft.Executor(1) as executor:
        error = executor.submit(freeze).exception()
    assert isinstance(error, Frozen)
    assert isinstance(error.__cause__, _RemoteTraceback)
