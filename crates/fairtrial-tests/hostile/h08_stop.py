# Stops itself; or its parent, which watches its deadline.
import signal


def stop(pid):
    os.kill(pid, signal.SIGSTOP)

    def stopped():
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] == "T"

    effect = wait_until(stopped, 0.3)
    os.kill(pid, signal.SIGCONT)
    return None if effect else "no effect"


def attack(places, what):
    if what == "itself":
        os.kill(os.getpid(), signal.SIGSTOP)
        return "went on"
    return [attempt("SIGSTOP to the parent", stop, os.getppid() or 1)]
