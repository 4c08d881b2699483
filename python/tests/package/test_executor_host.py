"""PY-30 to PY-32: what workers have of their host, and what they write."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import work
from support import WAIT_S, Gate

import fairtrial as ft

# -- PY-30 and PY-31: what workers have of their host


@pytest.mark.parametrize("isolation", ["reuse", "fresh"])
def test_workers_have_their_hosts_path_arguments_and_directory(isolation, tmp_path, monkeypatch):
    """PY-30"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["a program", "--flag"])
    monkeypatch.syspath_prepend(str(tmp_path / "more"))
    with ft.Executor(1, isolation=isolation) as executor:
        found = executor.submit(work.surroundings).result(WAIT_S)
    assert found["argv"] == ["a program", "--flag"]
    assert found["cwd"] == str(tmp_path)
    assert found["path"] == [entry or str(tmp_path) for entry in sys.path]


def test_a_module_made_since_is_found(one, tmp_path, monkeypatch):
    """PY-30"""
    assert one.submit(int).result(WAIT_S) == 0
    (tmp_path / "made_later.py").write_text("def f(): return 'found'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import made_later

    try:
        assert one.submit(made_later.f).result(WAIT_S) == "found"
    finally:
        del sys.modules["made_later"]


def test_a_script_needs_no_main_guard(program):
    """PY-30"""
    ended = program(
        """
        import sys
        import fairtrial as ft
        print("begun", flush=True)

        class Point:
            def __init__(self, x): self.x = x
            def moved(self): return Point(self.x + 1)

        def double(x): return x * FACTOR

        FACTOR = 2
        executor = ft.Executor(2)
        print(executor.submit(double, 4).result())
        FACTOR = 3
        print(executor.submit(double, 4).result())

        def double(x): return "redefined"

        print(executor.submit(double, 4).result())
        print(executor.submit(lambda: FACTOR).result())
        back = executor.submit(Point.moved, Point(1)).result()
        print(type(back) is Point, back.x)
        print(executor.submit(lambda: __name__).result())

        class Own(Exception): pass
        def fail(): raise Own("mine")
        try:
            executor.submit(fail).result()
        except Own as error:
            print("caught", error)
        """
    )
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["begun", "8", "12", "redefined", "3", "True 2", "__main__", "caught mine"]


@pytest.mark.parametrize("isolation", ["reuse", "fresh"])
def test_records_that_calls_log_appear_as_the_host_set_logging_up(program, isolation):
    """RE-14, PY-32: as with the standard library's pools, which fork."""
    ended = program(
        f"""
        import logging
        import fairtrial as ft

        def work(n):
            logging.info("%d", n)
            logging.getLogger("quiet").info("never seen")
            logging.getLogger("loud").debug("%d", n)

        executor = ft.Executor(1, isolation="{isolation}")
        logging.basicConfig(level=logging.INFO, format="{{levelname}} of {{name}}: {{message}}", style="{{")
        logging.getLogger("loud").setLevel(logging.DEBUG)
        logging.getLogger("quiet").setLevel(logging.ERROR)
        executor.submit(work, 1).result()
        logging.getLogger().setLevel(logging.ERROR)  # too late for the workers
        executor.options(timeout=60).submit(work, 2).result()
        executor.shutdown()
        """
    )
    lines = [f"{name}: {n}" for n in (1, 2) for name in ("INFO of root", "DEBUG of loud")]
    assert ended.stderr.splitlines() == lines


def test_handlers_that_workers_cannot_have_stay_with_the_host(program, tmp_path):
    """PY-32"""
    ended = program(
        f"""
        import logging, sys
        import fairtrial as ft

        class Own(logging.Formatter):
            def format(self, record): return "of the host's own class"

        def work():
            logging.warning("seen")

        logging.basicConfig(filename={str(tmp_path / "log")!r}, level=logging.INFO)
        plain = logging.StreamHandler(sys.stdout)
        plain.setFormatter(Own())
        logging.getLogger().addHandler(plain)
        with ft.Executor(1) as executor:
            executor.submit(work).result()
        """
    )
    assert (ended.stdout, ended.stderr) == ("WARNING:root:seen\n", "")
    assert "seen" not in (tmp_path / "log").read_text()


def test_a_call_may_start_new_interpreters_that_find_its_functions(program):
    """PY-29"""
    ended = program(
        """
        import multiprocessing
        import fairtrial as ft

        OFFSETS = [10]  # a list: what refers to one goes by `cloudpickle`

        def square(x):
            return x * x

        def moved(x):
            return x * x + OFFSETS[0]

        def plain(kind):
            with multiprocessing.get_context(kind).Pool(2) as pool:
                return pool.map_async(square, range(3)).get(60)

        def by_cloudpickle(kind):
            with multiprocessing.get_context(kind).Pool(2) as pool:
                return pool.map_async(moved, range(3)).get(60)

        with ft.Executor(1) as executor:
            for kind in ("fork", "spawn", "forkserver"):
                print(executor.submit(plain, kind).result(), executor.submit(by_cloudpickle, kind).result())
        """
    )
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["[0, 1, 4] [10, 11, 14]"] * 3


def test_the_registry_of_what_travels_by_value_does_not_grow(program):
    """PY-30"""
    ended = program(
        """
        import cloudpickle, fairtrial as ft
        from cloudpickle import cloudpickle as inner

        class Own: pass
        def sizes(thing):
            from cloudpickle import cloudpickle as inner
            return len(inner._DYNAMIC_CLASS_TRACKER_BY_ID), len(inner._PICKLE_BY_VALUE_MODULES)

        with ft.Executor(1) as executor:
            first = executor.submit(sizes, Own()).result()
            for _ in range(100):
                last = executor.submit(sizes, Own()).result()
            here = len(inner._DYNAMIC_CLASS_TRACKER_BY_ID), len(inner._PICKLE_BY_VALUE_MODULES)
            print(first == last, here[0] <= 1, here[1])
        """
    )
    assert (ended.stdout, ended.stderr) == ("True True 0\n", "")


def test_python_is_the_hosts_own_unless_named(one):
    """PY-31"""
    assert one.submit(work.executable).result(WAIT_S) == sys.executable
    with ft.Executor(1, python=sys.executable) as executor:
        assert executor.submit(work.executable).result(WAIT_S) == sys.executable


def _other_python():
    found = [str(path) for path in Path(sys.base_prefix).parent.glob("3.*/bin/python3")]
    found += ["/usr/bin/python3", "/usr/local/bin/python3"]
    ask = "import sys; sys.exit(sys.version_info[1] == int(sys.argv[1]))"
    for path in found:
        if os.access(path, os.X_OK):
            if subprocess.run([path, "-c", ask, str(sys.version_info[1])], capture_output=True).returncode == 0:
                return path
    return None


def test_a_python_that_cannot_serve_is_refused(tmp_path):
    """PY-31"""
    with pytest.raises(ValueError, match="empty"):
        ft.Executor(1, python="")
    with pytest.raises(ValueError, match="no interpreter"):
        ft.Executor(1, python="/nowhere/python")
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.7\n")
    other.chmod(0o755)
    with pytest.raises(ValueError, match="is Python 3.7"):
        ft.Executor(1, python=other)


def test_a_real_python_of_another_version_is_refused():
    """PY-31"""
    other = _other_python()
    if other is None:
        pytest.skip("no other CPython found")
    with pytest.raises(ValueError, match="pickled for"):
        ft.Executor(1, python=other)


# -- PY-32: output


def test_output_is_echoed_to_the_descriptors(program):
    """PY-32"""
    ended = program(
        """
        import fairtrial as ft, work
        with ft.Executor(1) as executor:
            executor.submit(work.say, "to stdout").result()
            executor.submit(work.say, "to stderr", True).result()
            executor.submit(work.write, "by descriptor").result()
        """
    )
    assert (ended.stdout, ended.stderr) == ("to stdout\nby descriptor", "to stderr\n")


def test_output_is_echoed_as_it_arrives(program, tmp_path):
    """PY-32"""
    gate = Gate(tmp_path / "gate")
    host = program.start(
        """
        import sys, fairtrial as ft, work
        with ft.Executor(1) as executor:
            executor.submit(work.say_and_pass_gate, "early", sys.argv[1]).result()
        """,
        gate.path,
    )
    assert host.stdout.readline() == "early\n"
    gate.open()
    assert host.wait(WAIT_S) == 0


def test_output_is_echoed_to_replaced_streams(monkeypatch):
    """PY-32: as in a notebook"""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with ft.Executor(1) as executor:
        executor.submit(work.say, "to stdout").result(WAIT_S)
        executor.submit(work.say, "to stderr", True).result(WAIT_S)
    assert (out.getvalue(), err.getvalue()) == ("to stdout\n", "to stderr\n")


def test_output_is_in_the_outcome_too(one, capfd):
    """PY-32"""
    future = one.submit(work.say, "heard")
    assert future.outcome(WAIT_S).stdout == "heard\n"


def test_run_and_backends_do_not_echo(capfd):
    """PY-32"""
    call = ft.Call(source="def f(): print('secret')", function="f")
    assert ft.run(call).stdout == "secret\n"
    with ft.LocalBackend() as backend:
        assert backend.execute(call).stdout == "secret\n"
    with ft.Executor(1, echo=False) as executor:
        assert executor.submit(work.say, "secret").outcome(WAIT_S).stdout == "secret\n"
    assert capfd.readouterr() == ("", "")


def test_stdin_is_empty(one):
    """PY-32"""
    assert one.submit(work.read_stdin).result(WAIT_S) == ("", b"")


@pytest.mark.parametrize(("value", "is_on"), [(None, True), ("1", True), ("0", False)])
def test_faulthandler_is_on_unless_told_otherwise(monkeypatch, value, is_on):
    """PY-32"""
    if value is None:
        monkeypatch.delenv("PYTHONFAULTHANDLER", raising=False)
    else:
        monkeypatch.setenv("PYTHONFAULTHANDLER", value)
    with ft.Executor(1, echo=False) as executor:
        assert executor.submit(work.is_faulthandler_on).result(WAIT_S) is is_on
        crashed = executor.submit(work.crash).outcome(WAIT_S)
        assert ("Segmentation fault" in crashed.stderr) is is_on
