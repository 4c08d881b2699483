"""The bare limits of `make bench`: what the kernel and a plain interpreter cost without an engine.

One experiment for each line of standard input, its samples in seconds as one line of JSON, as `bench_engine` does.
"""

import json
import mmap
import os
import subprocess
import sys
import time

import numpy


def fork(count):
    """Fork of this warm interpreter (numpy loaded), exit of the child, reap."""
    for _ in range(count):
        began = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        yield time.perf_counter() - began


def python(count):
    """A bare interpreter, from start to end."""
    yield from _spawn(count, "pass")


def import_numpy(count):
    """`python -c "import numpy"`, from start to end."""
    yield from _spawn(count, "import numpy")


def _spawn(count, text):
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-c", text], check=True)
        yield time.perf_counter() - began


def memcpy(mebibytes):
    """Making the array, as the called function does, and one copy of it into fresh memory."""
    began = time.perf_counter()
    numpy.ones(mebibytes << 17, dtype="f8").copy()
    yield time.perf_counter() - began


def memfd(mebibytes):
    """Making the array, one write of it into a memory file, a private mapping of that, a byte read of every page.

    The least that two processes can do about it.
    """
    began = time.perf_counter()
    array = numpy.ones(mebibytes << 17, dtype="f8")
    descriptor = os.memfd_create("bench")
    view, written = memoryview(array).cast("B"), 0
    while written < len(view):
        written += os.write(descriptor, view[written:])
    mapping = mmap.mmap(descriptor, written, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    numpy.frombuffer(mapping, dtype="u1")[::4096].sum()
    yield time.perf_counter() - began
    os.close(descriptor)


EXPERIMENTS = {each.__name__: each for each in (fork, python, import_numpy, memcpy, memfd)}


def main():
    for line in sys.stdin:
        name, number = line.split()
        print(json.dumps(list(EXPERIMENTS[name](int(number)))), flush=True)


if __name__ == "__main__":
    main()
