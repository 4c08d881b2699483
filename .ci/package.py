"""Runs the package's own tests on this interpreter and on every other CPython from 3.10 to 3.13 that is found.

A version that is not found is printed as skipped. The library is the one that `make package` put beside the sources:
it is the same for all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "python" / "tests" / "package"
VERSIONS = [(3, minor) for minor in range(10, 14)]
TIMEOUT_S = 900
# What these show is decided by the compiled engine, which is the same for every version: tried once.
ENGINES_OWN = ("test_evaluate*.py", "test_program_search.py", "test_study.py")


def main() -> int:
    for version in VERSIONS:
        name = "CPython %d.%d" % version
        python = sys.executable if sys.version_info[:2] == version else prepared(version)
        if python is None:
            print(f"{name}: SKIPPED, no such interpreter was found", flush=True)
            continue
        print(f"{name}: {python}", flush=True)
        if run_tests(python, is_main=python == sys.executable) != 0:
            print(f"failed: {name}", flush=True)  # the others would only hide what it printed
            return 1
    print("the package's tests passed", flush=True)
    return 0


def run_tests(python: str, is_main: bool) -> int:
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    if not is_main:
        environment["FAIRTRIAL_TEST_BIG"] = "0"  # what takes gigabytes or 100,000 calls is tried once
    # Two at once: most of the time is waiting for processes to start.
    options = ["-q", "-rfEsR", "--reruns", "1", "-n", "2", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=120"]
    if not is_main:
        options += [f"--ignore-glob={TESTS / name}" for name in ENGINES_OWN]
    command = [python, "-m", "pytest", *options, str(TESTS)]
    return subprocess.run(command, cwd=ROOT, env=environment, timeout=TIMEOUT_S).returncode


def prepared(version: tuple[int, int]) -> str | None:
    """An interpreter of a version in a virtual environment that has what the tests need."""
    base = find(version)
    if base is None:
        return None
    environment = Path(sys.prefix) / "versions" / ("%d.%d" % version)
    python, done = environment / "bin" / "python", environment / ".done"
    requirements = TESTS / "requirements.txt"
    if not done.exists() or done.stat().st_mtime < requirements.stat().st_mtime:
        subprocess.run([base, "-m", "venv", "--clear", str(environment)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)]
        subprocess.run(pip, check=True)
        done.touch()
    return str(python)


def find(version: tuple[int, int]) -> str | None:
    """An interpreter of that version: on the PATH, or one of pyenv's."""
    name = "python%d.%d" % version
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [shutil.which(name), *sorted(map(str, pyenv.glob("%d.%d.*/bin/python3" % version)), reverse=True)]
    return next((path for path in found if path and is_cpython(path, version)), None)


def is_cpython(path: str, version: tuple[int, int]) -> bool:
    """Whether it runs, and is what its name says: a name on the PATH may be a shim without an interpreter behind it."""
    ask = (
        "import sys, sysconfig; threaded = bool(sysconfig.get_config_var('Py_GIL_DISABLED')); "
        "print(sys.implementation.name, *sys.version_info[:2], threaded)"
    )
    answer = subprocess.run([path, "-c", ask], capture_output=True, text=True)
    return answer.stdout.split() == ["cpython", *map(str, version), "False"]


sys.exit(main())
