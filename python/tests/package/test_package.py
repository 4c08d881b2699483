"""Section 1 of the package's requirements: the package itself."""

import dataclasses
import importlib.util
import inspect
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import work
from support import HERE, WAIT_S, environment

import fairtrial as ft

PACKAGE = Path(ft.__file__).parent


def test_the_package_has_its_parts():
    """PY-1: what a wheel holds is looked at by `make check`; the launcher is inside the library, and no file"""
    assert (PACKAGE / "py.typed").exists() and (PACKAGE / "_engine.pyi").exists()
    assert list(PACKAGE.glob("_engine.abi3.so"))


def test_a_launcher_that_is_not_there_is_named(tmp_path):
    """PY-2: the launcher is inside the library; only one that the user names can be missing"""
    missing = str(tmp_path / "launcher")
    with ft.LocalBackend(launcher=missing) as backend, pytest.raises(ft.EngineError, match=missing):
        backend.execute(ft.Call(argv=["true"]))


def test_a_launcher_that_is_not_executable_is_named(tmp_path):
    """PY-2"""
    launcher = tmp_path / "launcher"
    launcher.write_bytes(b"\x7fELF")
    launcher.chmod(0o644)
    with ft.LocalBackend(launcher=str(launcher)) as backend, pytest.raises(ft.EngineError, match=str(launcher)):
        backend.execute(ft.Call(argv=["true"]))


def test_a_package_in_a_zip_is_refused(tmp_path):
    """PY-2"""
    import zipfile

    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in [*PACKAGE.glob("*.py"), *PACKAGE.glob("*.so")]:
            zipped.write(path, f"fairtrial/{path.name}")
    env = environment() | {"PYTHONPATH": str(archive)}
    ended = subprocess.run(
        [sys.executable, "-c", "import fairtrial"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert "ImportError" in ended.stderr and str(archive) in ended.stderr and "zip" in ended.stderr


def test_importing_starts_and_loads_nothing_more(program):
    """PY-3"""
    ended = program(
        """
        import sys, os, pathlib
        opened = []
        before = set(sys.modules)
        sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else
                         print("started", event) if event in ("subprocess.Popen", "os.fork", "os.posix_spawn",
                                                              "_thread.start_new_thread") else None)
        import fairtrial
        loaded = set(sys.modules) - before
        for name in ("numpy", "asyncio", "cloudpickle", "joblib", "ray"):
            if name in loaded: print("loaded", name)
        library = [os.path.realpath(path) for path in (*sys.path, os.path.dirname(os.__file__)) if path]
        for name in opened:
            if isinstance(name, str) and not any(os.path.realpath(name).startswith(path) for path in library):
                print("read", name)
        print(len(os.listdir("/proc/self/task")))
        """
    )
    assert (ended.stdout, ended.stderr) == ("1\n", "")


@pytest.mark.skipif(not importlib.util.find_spec("mypy"), reason="mypy is not installed; `make check` has it")
def test_submit_keeps_types():
    """PY-4: `make check` runs stubtest and pyright too"""
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(HERE / "typed_sample.py")],
        cwd=HERE,
        env=environment() | {"MYPYPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_joblib_without_joblib_names_the_extra(program):
    """PY-5"""
    ended = program(
        """
        import sys
        sys.modules["joblib"] = None
        import fairtrial as ft
        try:
            ft.joblib.register()
        except ImportError as error:
            print(error)
        """
    )
    assert "fairtrial[joblib]" in ended.stdout, ended.stderr


def test_only_cloudpickle_is_required():
    """PY-5"""
    text = (PACKAGE.parent.parent / "pyproject.toml").read_text()
    assert 'dependencies = ["cloudpickle>=3"]' in text


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_refused(program, platform):
    """PY-6"""
    ended = program(
        f"""
        import sys
        sys.platform = {platform!r}
        try:
            import fairtrial
        except ImportError as error:
            print(error)
        """
    )
    assert "Linux 5.13 or later" in ended.stdout and platform in ended.stdout


def test_an_old_kernel_is_refused_at_the_first_call(program):
    """PY-6: the kernel is asked to say that it is old"""
    ended = program(
        """
        import ctypes, os
        UNAME26 = 0x0020000
        ctypes.CDLL(None).personality(UNAME26)
        assert os.uname().release.startswith("2.6")
        import fairtrial as ft
        executor, backend = ft.Executor(1), ft.LocalBackend()
        for begin in (lambda: executor.submit(int), lambda: backend.execute(ft.Call(argv=["true"]))):
            try:
                begin()
            except ft.EngineError as error:
                print(error)
        """
    )
    assert ended.stdout.count("needs Linux 5.13 or later, and this is 2.6") == 2, ended.stderr


PUBLIC = [name for name in ft.__all__ if not name.startswith("__")]
OF_THE_STANDARD_LIBRARY = {"ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"}
WITHOUT_EXAMPLE = {"EngineError"}  # made by the engine alone


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_has_a_docstring_with_an_example(name):
    """PY-7: the examples are run by `make check`"""
    if name in OF_THE_STANDARD_LIBRARY:
        pytest.skip(f"{name} is the standard library's")
    text = inspect.getdoc(getattr(ft, name))
    assert text
    assert name in WITHOUT_EXAMPLE or ">>>" in text


def test_public_methods_have_docstrings():
    """PY-7"""
    for cls in (ft.Executor, ft.Future, ft.LocalBackend, ft.Outcome):
        for name, member in vars(cls).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                assert inspect.getdoc(member), f"{cls.__name__}.{name}"


SECRET = "a secret value"


def test_the_repr_of_every_public_object_is_one_line_without_payloads(one):
    """PY-7"""
    call = ft.Call(
        source=f"# {SECRET}\ndef f(x): raise ValueError(x)",
        function="f",
        args=[SECRET],
        kwargs={},
        env={"SECRET": SECRET},
    )
    outcome = ft.run(call)
    command = ft.Call(argv=["echo", SECRET], stdin=SECRET)
    future = one.submit(work.same, SECRET)
    future.result(WAIT_S)
    with ft.LocalBackend(env_allow=["SECRET"]) as backend:
        things = [call, command, outcome, outcome.error, outcome.metrics, future, future.outcome(), one, backend]
        things += [ft.run(command).exit, call.limits, one.options(env={"SECRET": SECRET}), ft.Event("submit", 1)]
        for thing in things:
            assert "\n" not in repr(thing) and SECRET not in repr(thing), repr(thing)


def test_limits_take_sizes_and_seconds():
    """PY-8"""
    limits = ft.Limits(memory="512M", cpu=2, processes=3, open_files=4, file_size="1K", output=10)
    assert dataclasses.astuple(limits) == (512 << 20, 2.0, 3, 4, 1024, 10)


def test_a_call_takes_the_keys_of_the_json():
    """PY-8"""
    keys = """id source file function args kwargs python python_path env cwd timeout_s time queue_timeout_s limits
        sandbox isolation preload preload_shared result capture_bytes argv stdin""".split()
    assert sorted(field.name for field in dataclasses.fields(ft.Call)) == sorted(keys)
    same = ft.Call(source="def f(): pass", function="f", limits={"memory_bytes": 1 << 20, "cpu_s": 1, "file_bytes": 5})
    assert same.limits == ft.Limits(memory="1M", cpu=1, file_size=5)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ft.Limits(memroy=1), TypeError, "did you mean 'memory'"),
        (lambda: ft.Call(source="", function="f", timeout=1), TypeError, "did you mean 'timeout_s'"),
        (lambda: ft.Call(source="", function="f", functoin="g"), TypeError, "did you mean 'function'"),
        (lambda: ft.Limits(memory="1Q"), ValueError, "memory"),
        (lambda: ft.Limits(memory=-1), ValueError, "memory"),
        (lambda: ft.Limits(memory=1.5), ValueError, "memory"),
        (lambda: ft.Limits(cpu=0), ValueError, "cpu"),
        (lambda: ft.Limits(cpu=float("nan")), ValueError, "cpu"),
        (lambda: ft.Limits(processes="many"), ValueError, "processes"),
        (lambda: ft.Call(source="", function="f", timeout_s=-1), ValueError, "timeout_s"),
        (lambda: ft.Call(source="", function="f", timeout_s="3"), ValueError, "timeout_s"),
        (lambda: ft.Call(source="", function="f", sandbox="iron"), ValueError, "sandbox"),
        (lambda: ft.Call(source="", function="f", sandbox=3), TypeError, "sandbox must be a level or a mapping"),
        (lambda: ft.Call(source="", function="f", isolation="some"), ValueError, "isolation"),
        (lambda: ft.Call(source="", function="f", result="xml"), ValueError, "result"),
        (lambda: ft.Call(source="", function="f", env={"A=B": "c"}), ValueError, "env"),
        (lambda: ft.Call(source="", function="f", preload="numpy"), ValueError, "preload"),
        (lambda: ft.Call(argv="echo hello"), ValueError, "argv"),
        (lambda: ft.Call(argv=[]), ValueError, "argv"),
        (lambda: ft.Call(argv=["true"], function="f"), ValueError, "argv"),
        (lambda: ft.Call(source="", argv=["true"]), ValueError, "one of"),
        (lambda: ft.Call(function="f"), ValueError, "one of"),
        (lambda: ft.Call(source=""), ValueError, "function"),
        (lambda: ft.Call(file="/nowhere/x.py", function="f"), ValueError, "file"),
        (lambda: ft.Executor(timeout=0), ValueError, "timeout"),
        (lambda: ft.Executor(sandbox="iron"), ValueError, "sandbox"),
        (lambda: ft.Executor(sandbox={"level": "iron"}), ValueError, "unknown level `iron`; the levels are"),
        (lambda: ft.run_code("def f(): pass", "f", sandbox="iron"), ValueError, "sandbox"),
        (lambda: ft.Executor(limits=3), TypeError, "limits"),
        (lambda: ft.Executor(isolation="some"), ValueError, "isolation"),
        (lambda: ft.run_code("def f(): pass", "f", timeout_seconds=3), TypeError, "timeout"),
    ],
)
def test_what_is_wrong_is_said_at_construction(make, error, words):
    """PY-8"""
    with pytest.raises(error, match=words):
        make()


NEEDS_STRICT = "cannot do that; use `strict`, or leave it out"
NEEDS_CONFINED = "cannot do that; use `confined`, or leave it out"
STRICT = {"level": "strict"}


@pytest.mark.parametrize(
    ("sandbox", "error", "words"),
    [
        ({"network": "none"}, ValueError, "`level` is missing"),
        (STRICT | {"netwrk": "none"}, TypeError, "did you mean 'network'"),
        (STRICT | {"network": "lo"}, ValueError, "`sandbox.network`: `lo` is none of"),
        (STRICT | {"network": 3}, ValueError, "`sandbox.network` must be text"),
        (STRICT | {"on_missing": "warn"}, ValueError, "neither `fail` nor `degrade`"),
        (STRICT | {"read": "/data"}, ValueError, "`sandbox.read` is a list"),
        (STRICT | {"write": [""]}, ValueError, "`sandbox.write` has an empty path"),
        (STRICT | {"scratch_bytes": "5X"}, ValueError, "`sandbox.scratch_bytes`: unknown unit"),
        (STRICT | {"scratch_inodes": 0}, ValueError, "`sandbox.scratch_inodes` must be a whole number"),
        (STRICT | {"devices": ["gpu"]}, ValueError, "unknown device `gpu`; the only one is `nvidia`"),
        (STRICT | {"devices": ["nvidia"], "address_space": "4G"}, ValueError, "`sandbox.address_space`: does not go"),
        (STRICT | {"cpus": []}, ValueError, "`sandbox.cpus`: names no processor"),
        (STRICT | {"cpus": [-1]}, ValueError, "`sandbox.cpus` must be a whole number"),
        ({"level": "limits", "network": "none"}, ValueError, NEEDS_CONFINED),
        ({"level": "limits", "read": ["/data"]}, ValueError, NEEDS_CONFINED),
        ({"level": "limits", "scratch_bytes": "1M"}, ValueError, NEEDS_STRICT),
        ({"level": "confined", "network": "loopback"}, ValueError, NEEDS_STRICT),
        ({"level": "none", "write": ["/data"]}, ValueError, "use `limits`, or leave it out"),
        ({"level": "none", "address_space": "4G"}, ValueError, "use `limits`, or leave it out"),
    ],
)
def test_what_is_wrong_with_a_sandbox_is_said_at_construction(sandbox, error, words):
    """SB-14, SB-69, PY-8"""
    for make in (
        lambda: ft.Call(argv=["true"], sandbox=sandbox),
        lambda: ft.Executor(sandbox=sandbox),
        lambda: ft.run_code("def f(): pass", "f", sandbox=sandbox),
    ):
        with pytest.raises(error, match=words):
            make()


@pytest.mark.parametrize(
    "sandbox",
    [
        "none",
        "limits",
        "strict",
        {"level": "none", "on_missing": "fail", "network": "host", "scratch_bytes": None, "read": []},
        {"level": "limits", "write": ["/var"], "address_space": "4G"},
        {"level": "confined", "read": ["/var"], "network": "host"},
        STRICT
        | {"network": "loopback", "read": ["/var"], "write": ["/tmp"], "scratch_bytes": "1M", "scratch_inodes": None},
        STRICT | {"devices": ["nvidia"], "cpus": [0], "on_missing": "degrade"},
    ],
)
def test_a_sandbox_is_a_level_or_a_mapping(sandbox):
    """SB-14"""
    call = ft.Call(argv=["true"], sandbox=sandbox)
    assert pickle.loads(pickle.dumps(call)) == call
    assert ft.run(call).in_force["requested"] == (sandbox if isinstance(sandbox, str) else sandbox["level"])


def test_a_variable_replaces_a_default_and_no_explicit_choice(monkeypatch):
    """SB-15"""
    explicit = ft.Call(argv=["true"], sandbox="none")
    silent = ft.Call(argv=["true"])
    with ft.Executor(1, sandbox="none") as executor:
        monkeypatch.setenv("FAIRTRIAL_SANDBOX", "none,raed=/")
        assert ft.run(explicit).ok
        assert executor.submit(int).result(WAIT_S) == 0
        for make in (
            lambda: ft.Call(argv=["true"]),
            lambda: ft.run(silent),
            lambda: ft.run_code("def f(): pass", "f"),
            lambda: ft.Executor(),
            lambda: executor.options(sandbox=None),
        ):
            with pytest.raises(ValueError, match=r"`FAIRTRIAL_SANDBOX`: unknown key `raed` \(did you mean `read`\?\)"):
                make()
    for blank_or_good in ("", " ", "none,on_missing=fail"):
        monkeypatch.setenv("FAIRTRIAL_SANDBOX", blank_or_good)
        assert ft.run(silent).ok


def test_a_limit_that_is_none_is_lifted_and_one_not_given_is_the_levels():
    """SB-16"""
    silent, lifted = ft.Limits(), ft.Limits(memory=None, processes=None, open_files=None, file_size=None, output=None)
    assert silent == ft.Limits(memory="default") != lifted
    assert (silent.memory, silent.cpu, lifted.memory) == ("default", None, None)
    assert dataclasses.replace(silent, processes=3) == ft.Limits(processes=3)
    assert ft.Call(argv=["true"], limits={"memory_bytes": None}).limits == ft.Limits(memory=None)
    for limits in (silent, lifted):
        assert ft.run(ft.Call(argv=["true"], limits=limits)).ok


@pytest.mark.parametrize(
    "thing",
    [
        ft.Limits(memory="1M"),
        ft.Limits(memory=None),
        ft.Call(argv=["true"], sandbox={"level": "none", "on_missing": "fail"}),
        ft.Call(source="def f(): pass", function="f", args=[1, [2]], kwargs={"a": 1}, env={"A": None}),
        ft.Call(argv=["true"], stdin="x"),
        ft.Event("submit", call_id=3),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_calls_and_limits_are_frozen_picklable_and_comparable(thing):
    """PY-8"""
    field = dataclasses.fields(thing)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(thing, field, None)
    again = pickle.loads(pickle.dumps(thing))
    assert again == thing and again is not thing
    assert thing != dataclasses.replace(thing, **_change(thing)) if not isinstance(thing, ft.Call) else True


def _change(thing):
    return {"memory": 5} if isinstance(thing, ft.Limits) else {"call_id": 4}


def test_a_call_can_be_a_file(tmp_path):
    """PY-8"""
    path = tmp_path / "solve.py"
    path.write_text("def f(x): return x + 1\n")
    assert ft.run(ft.Call(file=path, function="f", args=[1])).value == 2
    assert os.path.exists(path)


def test_every_requirement_is_cited_by_a_test():
    """Done means: every PY requirement is cited by a test."""
    text = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    cited = {int(number) for number in re.findall(r"PY-(\d+)", text)}
    assert set(range(1, 56)) - cited == set()
