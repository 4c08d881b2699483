"""Asks for a value again and again, interrupted at one step later each time; a process of its own, see `at_step`.

Usage: interrupted_host.py result|outcome SIZE; prints at how many steps it was interrupted.
"""

import contextlib
import os
import sys

import work
from support import wait_until

import fairtrial as ft


@contextlib.contextmanager
def at_step(step, act, file=None):
    """Has something done before one of the steps that the package's own code makes, as a signal handler would.

    If that raises between the steps of an `except` clause, CPython may take the exception that was handled there for
    one that still is, and soon for one that has been freed: whatever the process does later is not to be trusted.
    """
    package = os.path.dirname(ft.__file__)
    left = step

    def trace(frame, event, argument):
        nonlocal left
        name = frame.f_code.co_filename
        if os.path.dirname(name) == package and file in (None, name):
            frame.f_trace_opcodes = True
            left -= event == "opcode"
            if left < 0:
                sys.settrace(None)
                act()
        return trace

    tracer = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(tracer)


def interrupt():
    raise KeyboardInterrupt


def by_result(future):
    return future.result(0)


def by_outcome(future):
    return future.outcome(0).value


def main():
    how, value = sys.argv[1], b"x" * int(sys.argv[2])
    ask, other = (by_result, by_outcome) if how == "result" else (by_outcome, by_result)
    steps = 0
    with ft.Executor(1) as one:
        while True:
            future = one.submit(work.same, value)
            wait_until(future.done)
            try:
                with at_step(steps, interrupt):
                    assert ask(future) == value
                break
            except KeyboardInterrupt:
                pass
            first, second = (ask, other) if steps % 2 else (other, ask)
            assert first(future) == value and second(future) is first(future), steps
            steps += 1
    print(steps)


if __name__ == "__main__":
    main()
