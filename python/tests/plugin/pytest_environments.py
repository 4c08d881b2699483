"""Interpreters with each version of pytest that the plug-in serves: the tests' own, and an environment per older."""

import subprocess
import sys
from pathlib import Path

OLDER = {
    "pytest7": ["pytest>=7,<8", "pytest-xdist<3.6", "pytest-subtests<0.14"],
    "pytest8": ["pytest>=8,<9", "pytest-xdist", "pytest-subtests"],
}
NAMES = ["own", *OLDER]
INSTALL_LIMIT_S = 600


class Missing(Exception):
    """There is no such environment, and the message says why."""


def interpreter(name):
    """The interpreter of an environment, made where it is missing; raises Missing."""
    if name == "own":
        return sys.executable
    folder = Path(sys.prefix) / "versions" / name
    python, done = folder / "bin" / "python", folder / ".done"
    wanted = "\n".join(OLDER[name])
    if not done.exists() or done.read_text() != wanted:
        run([sys.executable, "-m", "venv", "--clear", str(folder)])
        run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *OLDER[name]])
        done.write_text(wanted)
    return str(python)


def run(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Missing("not installed within %d s" % INSTALL_LIMIT_S) from None
    if done.returncode:
        last = (done.stderr.strip() or "nothing was said").splitlines()[-1]
        raise Missing("could not be installed: %s" % last)
