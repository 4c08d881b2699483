"""Errors: a call's own, and those that say nothing of it (CL-74)."""

import pytest

import fairtrial as ft


def test_a_traceback_shows_the_line_and_the_message(backend):
    """CL-74"""
    source = "def g(x):\n    raise KeyError('the missing one')\ndef f():\n    return g(1)\n"
    outcome = backend.execute(ft.Call(source=source, function="f"))
    assert (outcome.verdict, outcome.error.type) == ("exception", "KeyError")
    assert "the missing one" in outcome.error.message
    assert "line 2" in outcome.error.traceback and "raise KeyError" in outcome.error.traceback


def test_a_long_message_and_traceback_arrive_whole(backend):
    """CL-13, CL-74"""
    source = "def f(): raise ValueError('m' * 90_000)"
    error = backend.execute(ft.Call(source=source, function="f")).error
    local = ft.run(ft.Call(source=source, function="f")).error
    assert (error.type, error.message, error.traceback) == (local.type, local.message, local.traceback)


def test_a_missing_function_is_an_exception(backend):
    """CL-74"""
    outcome = backend.execute(ft.Call(source="def g(): pass", function="f"))
    assert outcome.verdict == "exception" and "f" in outcome.error.message


def test_source_that_is_none_is_an_exception(backend):
    """CL-74"""
    outcome = backend.execute(ft.Call(source="def f(:", function="f"))
    assert (outcome.verdict, outcome.error.type) == ("exception", "SyntaxError")


def test_an_unknown_key_is_refused_with_a_suggestion(backend):
    """CL-74"""
    with pytest.raises(TypeError, match="timeout_s"):
        backend.execute(ft.Call(source="def f(): pass", function="f", timeot_s=1))


def test_what_is_no_call_is_refused(backend):
    """CL-74"""
    with pytest.raises(TypeError, match="Call"):
        backend.execute("def f(): pass")


def test_an_engine_error_is_no_verdict(make):
    """CL-30, CL-74"""
    backend = make()
    backend.shutdown()
    with pytest.raises(ft.EngineError):
        backend.execute(ft.Call(source="def f(): pass", function="f"))


def test_a_directory_that_is_not_there_is_said_so(backend):
    """CL-22, CL-74"""
    outcome = backend.execute(ft.Call(source="def f(): pass", function="f", cwd="/no/such/directory"))
    assert outcome.verdict == "setup_failed" and "/no/such/directory" in outcome.error.message
