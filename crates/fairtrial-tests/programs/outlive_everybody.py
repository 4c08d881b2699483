# Ignores what can be ignored, forks twice into a session of its own, and stays for a minute at most.
import os
import signal
import sys
import time


def linger():
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        time.sleep(0.05)
    os._exit(0)


def f(begun):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            linger()
        os._exit(0)
    os.wait()
    open(begun, "w").close()
    linger()


if __name__ == "__main__":
    f(sys.argv[1])
