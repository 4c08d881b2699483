"""Uses processor time in processes that its own worker never waits for."""

import ctypes
import os
import signal
import time

PR_SET_CHILD_SUBREAPER = 36


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def in_orphan(seconds, leave_session=False):
    """An orphan that its leader does not adopt; waits for its end without being its parent."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    read, write = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            if leave_session:
                os.setsid()
            os.close(read)
            burn(seconds)
            os._exit(0)
        os._exit(0)
    os.wait()
    os.close(write)
    os.read(read, 1)


def in_session(seconds):
    in_orphan(seconds, leave_session=True)


def in_unwaited(seconds):
    """A child that the kernel reaps by itself, since its parent ignores the news."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        burn(seconds)
        os._exit(0)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass


def in_many_orphans(seconds):
    """Orphans that end before anybody looks; each tells what it used."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    used = 0
    while used < seconds:
        read, write = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                burn(0.002)
                os.write(write, b"x")
            os._exit(0)
        os.wait()
        os.close(write)
        used += 0.002 * len(os.read(read, 1))
        os.close(read)
