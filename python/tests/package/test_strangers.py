"""No bytes of a stranger's are unpickled in the host, unless it is asked for by name (PY-47)."""

import asyncio
import os

import pytest
from support import WAIT_S

import fairtrial as ft

# Unpickled, each of them makes a directory.
SOURCE = """
import os, struct, sys

class Trap:
    def __init__(self, path):
        self.path = path
    def __reduce__(self):
        return os.mkdir, (self.path,)

class Snare(Exception):
    def __reduce__(self):
        return os.mkdir, self.args

def give(path):
    return Trap(path)

def fail(path):
    raise Snare(path)

def forge(path):
    '''An error record in the shim's name, with an exception that no source call has.'''
    frame = sys._getframe()
    while "generation" not in frame.f_locals:
        frame = frame.f_back
    shim, generation = frame.f_globals, frame.f_locals["generation"]
    import pickle
    record = {"verdict": "exception", "type": "Snare", "message": "", "traceback": ""}
    record["exception"] = pickle.dumps(Snare(path))
    frame.f_locals["self"].channel.send(22, generation, b"".join(shim["encode"](record)))
"""


@pytest.fixture
def trap(tmp_path):
    yield str(tmp_path / "sprung")
    assert not (tmp_path / "sprung").exists(), "it was unpickled here"


@pytest.fixture
def backend():
    with ft.LocalBackend(1) as backend:
        yield backend


def call(function, trap, **terms):
    return ft.Call(source=SOURCE, function=function, args=[trap], **terms)


def test_a_submitted_strangers_pickle_stays_closed(backend, trap):
    """PY-47"""
    future = backend.submit(call("give", trap, result="pickle"))
    assert future.outcome(WAIT_S).verdict == "ok"
    for ask in (future.result, lambda: future.outcome().value, lambda: asyncio.run(wrapped(future))):
        with pytest.raises(ValueError, match="unpickle()"):
            ask()
    assert isinstance(future.exception(), ValueError)


async def wrapped(future):
    return await asyncio.wait_for(asyncio.wrap_future(future), WAIT_S)


def test_a_submitted_strangers_pickle_can_be_opened(backend):
    """PY-47"""
    future = backend.submit(ft.Call(source="def f(): return {1: 'x'}", function="f", result="pickle"))
    with pytest.raises(ValueError, match="unpickle()"):
        future.result(WAIT_S)
    assert future.outcome().unpickle() == {1: "x"}
    assert (future.result(), future.outcome().value, future.exception()) == ({1: "x"}, {1: "x"}, None)


@pytest.mark.parametrize("result", ["data", "pickle"])
@pytest.mark.parametrize("function", ["fail", "forge"])
def test_a_strangers_exception_is_never_unpickled(backend, trap, function, result):
    """PY-47: even if it is sent in the shim's name"""
    error = backend.submit(call(function, trap, result=result)).exception(WAIT_S)
    assert type(error) in (ft.CandidateError, ft.ResultError)
    with pytest.raises((ft.CandidateError, ValueError)):
        ft.run_code(SOURCE, function, trap, result=result)


class Snare(Exception):
    def __reduce__(self):
        return os.mkdir, self.args


def fail(path):
    raise Snare(path)


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("given", ["executor", "options"])
def test_with_data_for_results_nothing_is_unpickled(trap, given):
    """PY-47, PY-17"""
    with ft.Executor(1, result="data" if given == "executor" else "pickle") as executor:
        if given == "options":
            executor = executor.options(result="data")
        error = executor.submit(fail, trap).exception(WAIT_S)
        assert type(error) is ft.CandidateError and error.outcome.error.type.endswith("Snare")
        assert type(executor.submit(Trap, trap).exception(WAIT_S)) is ft.ResultError
        assert executor.submit(divmod, 7, 2).result(WAIT_S) == (3, 1)
