"""What tests of Ray share: whether it is here, and programs that use it as processes of their own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import fairtrial as ft

PACKAGE_PARENT = str(Path(ft.__file__).parents[1])


def needs_ray():
    return pytest.importorskip("ray", reason="Ray is not installed for this Python: it is for one version, being large")


def program(text, under=(), **environment):
    """Runs a script as a process of its own to its end, perhaps by another program."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env |= {"PYTHONPATH": PACKAGE_PARENT, **environment}
    command = [*under, sys.executable, "-c", textwrap.dedent(text)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
