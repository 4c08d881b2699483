# Ignores every signal that can be ignored, blocks the rest, and goes on.
import signal


def attack(places, what):
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    end = time.monotonic() + TOO_LONG
    while time.monotonic() < end:
        time.sleep(0.05)
