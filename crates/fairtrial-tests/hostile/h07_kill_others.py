# Kills by number: everybody, its parent, a sibling call, the engine; or its own process group.
import signal


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    if pid > 0:
        # Signals to the first process of a namespace are dropped without an error.
        return "no effect" if is_running(pid) and not wait_until(lambda: not is_running(pid), 0.3) else None


def attack(places, what):
    if what == "group":
        os.killpg(0, signal.SIGKILL)
        return "survived"
    if what == "everybody":
        return [attempt("kill(-1)", kill, -1)]
    targets = {"parent": os.getppid() or 1, "sibling": places["sibling_pid"], "engine": places["engine_pid"]}
    return [attempt("kill " + name, kill, pid) for name, pid in targets.items()]
