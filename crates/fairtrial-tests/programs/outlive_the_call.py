"""Starts descendants that mean to outlive the call; each gives up by itself in the end."""
import os
import signal
import time

TOO_LONG = 40  # seconds


def finish(end):
    if end == "hang":
        time.sleep(TOO_LONG)


def wait_for(path):
    limit = time.monotonic() + 10
    while not os.path.exists(path) and time.monotonic() < limit:
        time.sleep(0.002)


def double_fork_and_setsid(end, mark):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            open(mark, "w").close()
            time.sleep(TOO_LONG)
        os._exit(0)
    os.wait()
    wait_for(mark)
    finish(end)


def ignore_every_signal(end, mark):
    if os.fork() == 0:
        for number in range(1, signal.NSIG):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
        os.setsid()
        open(mark, "w").close()
        time.sleep(TOO_LONG)
        os._exit(0)
    wait_for(mark)
    finish(end)


def fork_in_a_loop(end, mark):
    """One process at a time, always another one, for a bounded number of generations."""
    if os.fork() == 0:
        os.setsid()
        for generation in range(20000):
            if os.fork() != 0:
                os._exit(0)
            if generation == 20:
                open(mark, "w").close()
        os._exit(0)
    wait_for(mark)
    finish(end)


def fork_a_crowd(end, mark):
    """Parents and children alike fork on, up to 32 processes."""
    for _ in range(5):
        if os.fork() == 0:
            os.setpgid(0, 0)
    try:
        os.close(os.open(mark + str(os.getpid()), os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError:
        pass
    if os.getsid(0) != os.getpid():
        time.sleep(TOO_LONG)
        os._exit(0)
    directory, name = os.path.split(mark)
    limit = time.monotonic() + 10
    while sum(each.startswith(name) for each in os.listdir(directory)) < 32 and time.monotonic() < limit:
        time.sleep(0.002)
    open(mark, "w").close()
    finish(end)


def stop_itself(end, mark):
    if os.fork() == 0:
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(TOO_LONG)
        os._exit(0)
    wait_for(mark)
    finish(end)
