# Crashes by a signal, or by the interpreter's own fatal error; or tells what a crash would leave.
import resource
import signal


def attack(places, what):
    if what == "fatal":
        ctypes.pythonapi.Py_FatalError(b"the end")
    if what == "core limit":
        return list(resource.getrlimit(resource.RLIMIT_CORE))
    signal.signal(getattr(signal, what), signal.SIG_DFL)
    os.kill(os.getpid(), getattr(signal, what))
    time.sleep(TOO_LONG)
