# Ignores what can be ignored, forks twice into a session of its own, and means to outlive the engine.
import signal


def ignore():
    for number in set(range(1, signal.NSIG)) - {signal.SIGCHLD}:  # ignored, it would leave nobody to wait for
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass


def attack(places, what):
    ignore()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            libc.prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG
            open(what + ".begun", "w").close()
            linger()
        os._exit(0)
    os.wait()
    linger()
