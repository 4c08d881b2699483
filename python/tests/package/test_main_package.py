"""Programs that are run as a module of a package (PY-30)."""

import subprocess
import sys

from support import environment

MODULE = """
import fairtrial as ft
from .util import helper

def f(x):
    from .util import helper as again
    from . import util
    return helper(x) + again(x) + util.helper(x)

class Thing:
    def go(self):
        from .util import helper
        return helper(1)

def start():
    from . import util
    util.started = True

def started():
    from . import util
    return util.started

if __name__ == "__main__":
    for isolation in ("reuse", "fresh"):
        with ft.Executor(1, isolation=isolation, initializer=start) as executor:
            print(executor.submit(f, 1).result(), executor.submit(Thing().go).result(),
                  executor.submit(lambda: f(2)).result(), executor.submit(started).result())
"""


def test_functions_of_a_main_module_import_relative_to_its_package(tmp_path):
    """PY-30"""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "util.py").write_text("def helper(x): return x + 100\n")
    (package / "run.py").write_text(MODULE)
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "package.run"],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout == "303 101 306 True\n" * 2, ended.stderr
