"""Loops and takes no hint."""

import signal
import time


def f():
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    end = time.monotonic() + 300
    while time.monotonic() < end:
        pass
