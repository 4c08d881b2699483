# Answers, and then will not end: it hangs when the interpreter would stop, or crashes.
import atexit
import signal
import threading


class Clinging:
    def __del__(self):
        time.sleep(TOO_LONG)


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def attack(places, what):
    global kept
    if what == "atexit":
        atexit.register(time.sleep, TOO_LONG)
    elif what == "finalizer":
        kept = Clinging()
    elif what == "thread":
        threading.Thread(target=time.sleep, args=(TOO_LONG,)).start()
    else:
        atexit.register(crash)
    return "answered"
