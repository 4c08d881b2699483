"""The interpreter that has DRE: a virtual environment beside the tests' own, made where it is missing.

    python python/tests/dre/dre_environment.py    makes it, and prints its interpreter or why there is none

DRE needs a later Python than Fairtrial does, so it has an environment of its own. Standard library only.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
FOLDER = ROOT / ".venv-dre"
VERSIONS = [(3, minor) for minor in range(12, 16)]
INSTALL_LIMIT_S = 600


class Missing(Exception):
    """There is no such environment, and the message says why."""


def dre():
    """The environment's interpreter; raises Missing."""
    python, done = FOLDER / "bin" / "python", FOLDER / ".done"
    if not done.exists() or done.stat().st_mtime < REQUIREMENTS.stat().st_mtime:
        make(python)
        done.touch()
    return str(python)


def make(python):
    base = next(filter(None, map(find, VERSIONS)), None)
    if base is None:
        raise Missing("DRE needs CPython %d.%d or later, and none was found" % VERSIONS[0])
    run([base, "-m", "venv", "--clear", str(FOLDER)], "no virtual environment could be made")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "-r", str(REQUIREMENTS)], "DRE could not be installed")


def run(command, fault):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Missing("%s within %d s" % (fault, INSTALL_LIMIT_S)) from None
    if done.returncode:
        last = (done.stderr.strip() or "nothing was said").splitlines()[-1]
        raise Missing("%s: %s" % (fault, last))


def find(version):
    """An interpreter of that version: this one, one on the PATH, or one of pyenv's."""
    name = "python%d.%d" % version
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [sys.executable, shutil.which(name)]
    found += sorted(map(str, pyenv.glob("%d.%d.*/bin/python3" % version)), reverse=True)
    return next((path for path in found if path and is_cpython(path, version)), None)


def is_cpython(path, version):
    """Whether it runs and is what its name says: a name on the PATH may be a shim with nothing behind it."""
    ask = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    answer = subprocess.run([path, "-c", ask], capture_output=True, text=True)
    return answer.stdout.split() == ["cpython", *map(str, version)]


if __name__ == "__main__":
    try:
        print(dre())
    except Missing as missing:
        print("DRE: SKIPPED, %s" % missing)
