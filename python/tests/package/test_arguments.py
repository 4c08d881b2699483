"""What is wrong with an argument is said where it is given, by its name (PY-8)."""

import inspect

import pytest
import work
from support import WAIT_S

import fairtrial as ft

SOURCE = "def f(*args): return args"


def call(**given):
    return ft.Call(**({"source": SOURCE, "function": "f"} | given))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ft.Call(argv=["cat"], stdin=5), "`stdin` must be text or bytes, not int"),
        (lambda: ft.Call(argv=["echo", 5]), "`argv` must be a list of texts, .* int"),
        (lambda: ft.Call(argv=[b"echo"]), "`argv` must be a list of texts, .* bytes"),
        (lambda: call(source=b"def f(): pass"), "`source` must be text .*, not bytes"),
        (lambda: call(function=len), "`function` must be text"),
        (lambda: ft.Call(file=5, function="f"), "`file` must be text .*, not int"),
        (lambda: call(args="abc"), "`args` is a list, not a text"),
        (lambda: call(args={"a": 1}), "`args` must be a list or a tuple, not dict"),
        (lambda: call(args={1, 2}), "`args` must be a list or a tuple, not set"),
        (lambda: call(args=3), "`args` must be a list or a tuple, not int"),
        (lambda: call(kwargs=[1]), "`kwargs` must be a mapping .*, not list"),
        (lambda: call(kwargs={1: 2}), "`kwargs` must have texts for keys, .* int"),
        (lambda: call(env={"A": 1}), "`env` must map names to text or None, and 'A' has a value of type int"),
        (lambda: call(env="inherit"), "`env` must be a mapping"),
        (lambda: call(cwd=3), "`cwd` must be text"),
        (lambda: call(python=3), "`python` must be text"),
        (lambda: call(python_path=[3]), "`python_path` must be a list of texts"),
        (lambda: call(isolation=None), "`isolation` must be text"),
        (lambda: call(result=3), "`result` must be text"),
        (lambda: ft.Executor(preload="numpy"), "`preload` is a list, not a text"),
        (lambda: ft.Executor(env={"A": 1}), "`env` must map names to text or None, and 'A'"),
        (lambda: ft.Executor(env="all"), "\"inherit\", and not 'all'"),
        (lambda: ft.Executor(initializer=print, initargs=5), "`initargs` must be a list or a tuple"),
        (lambda: ft.Executor(echo="no"), "`echo` must be True or False"),
        (lambda: ft.Executor(isolation=3), "`isolation` must be text"),
        (lambda: ft.LocalBackend(env_allow="A"), "`env_allow` is a list"),
        (lambda: ft.LocalBackend(after_error="yes"), "`after_error` must be True or False"),
        (lambda: ft.LocalBackend(spill_dir=3), "`spill_dir` must be text"),
    ],
)
def test_a_bad_value_is_named(make, words):
    """PY-8"""
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("make", [ft.Executor, ft.LocalBackend])
@pytest.mark.parametrize("workers", [2.5, "2", [2]], ids=str)
def test_workers_are_counted_in_whole_numbers(make, workers):
    """PY-8, PY-10"""
    with pytest.raises(TypeError, match="max_workers must be an integer, not"):
        make(workers)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ft.run_code(SOURCE, "f", timeout_s=2), r"run_code\(\) .*'timeout_s'; did you mean 'timeout'"),
        (lambda: ft.run_code(SOURCE, "f", argv=["true"]), "'argv'"),
        (lambda: ft.Executor(2, timeot=3), r"Executor\(\) .*'timeot'; did you mean 'timeout'"),
        (lambda: ft.LocalBackend(max_cals=3), "did you mean 'max_calls'"),
        (lambda: ft.Executor().options(timeot=3), r"options\(\) .*did you mean 'timeout'"),
        (lambda: ft.Executor().options(max_workers=3), "it takes timeout, limits"),
    ],
)
def test_an_unknown_keyword_is_answered_with_the_nearest(make, words):
    """PY-8, PY-41"""
    with pytest.raises(TypeError, match=words):
        make()


@pytest.mark.parametrize("make", [ft.Executor, ft.LocalBackend])
def test_shutdown_refuses_what_is_no_time_and_goes_on(make):
    """PY-8, PY-26"""
    with make(1) as pool:
        for wrong in ("1", -1, float("nan"), True):
            with pytest.raises(ValueError, match="kill_after must be a number of seconds"):
                pool.shutdown(kill_after=wrong)
        outcome = pool.submit(work.add, 1, 2).result(WAIT_S) if make is ft.Executor else pool.execute(call()).ok
        assert outcome in (3, True)


def test_a_hook_that_cannot_be_called_is_refused():
    """PY-43"""
    backend = ft.LocalBackend(1)
    hooks = [name for name, _ in inspect.getmembers(ft.LocalBackend, inspect.isfunction) if name.startswith("on_")]
    assert len(hooks) == 7
    for name in hooks:
        with pytest.raises(TypeError, match="a hook must be a callable, not 5"):
            getattr(backend, name)(5)


def test_what_options_are_not_given_stays_as_it_was():
    """PY-33"""
    with ft.Executor(1, timeout=60, env={"A": "b"}, echo=False) as executor:
        other = executor.options(timeout=None)
        assert other.submit(work.getenv, "A").result(WAIT_S) == ["b"]
        assert other._terms.timeout_s is None and other._terms.echo is False
        assert other.options()._terms.given == other._terms.given
