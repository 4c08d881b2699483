"""Leaves a grandchild in a session of its own, which holds the output open, and waits."""

import os
import time


def f():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
    time.sleep(300)
