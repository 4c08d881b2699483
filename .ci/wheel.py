"""PY-1: builds the wheel, looks at what it holds, installs it in an empty environment without network or compiler, and
runs a call there."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WANTED = {"fairtrial/__init__.py", "fairtrial/_engine.abi3.so", "fairtrial/_engine.pyi", "fairtrial/py.typed"}
UNWANTED = (".rs", ".toml", ".lock", ".c", ".pyc", ".yaml", ".yml")
CALL = """
import os, fairtrial as ft
assert ft.__file__.startswith(os.environ["ENVIRONMENT"]), ft.__file__
assert ft.run_code("def f(x): return x * 2", "f", 21, timeout=60) == 42
with ft.Executor(1) as executor:
    assert executor.submit(lambda x: x + 1, 1).result(60) == 2
print("a call ran from the installed wheel")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        there = Path(directory)
        build = ["-m", "maturin", "build", "--quiet", "--profile", os.environ.get("PROFILE", "release")]
        run([sys.executable, *build, "--out", str(there / "wheels")], cwd=ROOT)
        (wheel,) = (there / "wheels").glob("*.whl")
        look_at(wheel)
        download = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "cloudpickle"]
        run([sys.executable, *download, "--dest", str(there / "wheels")])
        install_and_call(there, wheel)


def look_at(wheel: Path) -> None:
    assert "cp310-abi3" in wheel.name, f"one wheel for CPython 3.10 and later, not {wheel.name}"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    missing = WANTED - names
    assert not missing, f"{wheel.name} lacks {sorted(missing)}"
    strange = [name for name in names if name.endswith(UNWANTED) or "test" in name.lower() or "crates" in name]
    assert not strange, f"{wheel.name} holds {strange}"
    top = {name.split("/")[0] for name in names}
    assert all(name == "fairtrial" or name.endswith(".dist-info") for name in top), sorted(top)
    print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size >> 10} KiB")


def install_and_call(there: Path, wheel: Path) -> None:
    environment = there / "environment"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    # No compiler can be found, and no other package.
    bare = {"PATH": str(environment / "bin"), "HOME": str(there), "ENVIRONMENT": str(environment)}
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--find-links"]
    offline = without_network()
    run([*offline, *pip, str(wheel.parent), "fairtrial"], env=bare, cwd=there)
    run([*offline, python, "-c", CALL], env=bare, cwd=there)


def without_network() -> list[str]:
    """What to put before a command so that it has no network, where that can be had."""
    for path in ("/usr/bin/unshare", "/bin/unshare"):
        command = [path, "--map-root-user", "--net"]
        if os.access(path, os.X_OK) and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    print("the network could not be taken away here; pip was told to use no index")
    return []


def run(command: list[str], **options: object) -> None:
    subprocess.run(command, check=True, timeout=900, **options)  # type: ignore[call-overload]


main()
