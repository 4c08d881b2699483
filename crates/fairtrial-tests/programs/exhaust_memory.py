"""Takes memory, a good deal more than its limit, and keeps it."""

import time


def f():
    taken = []
    for _ in range(64):
        taken.append(b"x" * (16 << 20))
    time.sleep(300)
