"""Brings what foreign suites need into a cache: environments with the peers, and the peers' pinned sources."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

from suites import ARCHIVES, REQUIREMENTS

SET_UP_LIMIT_S = 600


class Missing(Exception):
    """Something is not on this machine; the message names it."""


def cache():
    given = os.environ.get("FAIRTRIAL_FOREIGN_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = pathlib.Path(given or os.path.join(base, "fairtrial", "foreign"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def interpreter(version):
    """An installed interpreter of this version: ours, one on the path, or one of pyenv's."""
    root = pathlib.Path(os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"))
    on_path = shutil.which(f"python{version}")
    installed = sorted(root.glob(f"versions/{version}.*/bin/python"), reverse=True)
    for python in [sys._base_executable, *([on_path] if on_path else []), *map(str, installed)]:
        ask = "import sys; print('%d.%d' % sys.version_info[:2])"
        asked = subprocess.run([python, "-c", ask], capture_output=True, text=True)
        if asked.stdout.strip() == version:
            return python
    raise Missing(f"no interpreter of Python {version}")


def environment(version):
    """The interpreter of a virtual environment with the peers."""
    mark = hashlib.sha256(" ".join(REQUIREMENTS).encode()).hexdigest()[:8]
    folder = cache() / f"venv-{version}-{mark}"
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run([interpreter(version), "-m", "venv", folder])
        _run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *REQUIREMENTS])
        (folder / "done").touch()
    return str(python)


def unpacked(name):
    """The folder of a peer's source archive."""
    version, digest = ARCHIVES[name]
    folder = cache() / f"{name}-{version}"
    if not folder.exists():
        wanted = cache() / f"{name}.txt"
        wanted.write_text(f"{name}=={version} --hash=sha256:{digest}\n")
        fetch = ["download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary", name, "-d", cache()]
        _run([sys.executable, "-m", "pip", *fetch, "--require-hashes", "-r", wanted])
        with tarfile.open(cache() / f"{name}-{version}.tar.gz") as archive:
            archive.extractall(cache() / f"{name}-unpacking")  # its hash was looked at
        (cache() / f"{name}-unpacking" / f"{name}-{version}").rename(folder)
    return folder


def file_of_3_10():
    """A folder with the one file that CPython 3.10 has its tests of futures in."""
    lib = _run([interpreter("3.10"), "-c", "import test; print(test.__path__[0])"]).strip()
    source = pathlib.Path(lib) / "test_concurrent_futures.py"
    if not source.exists():
        raise Missing("the interpreter of Python 3.10 has no tests")
    folder = cache() / "cpython-3.10"
    folder.mkdir(exist_ok=True)
    shutil.copy(source, folder)
    return folder


def _run(command):
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SET_UP_LIMIT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout
