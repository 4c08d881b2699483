# Kills by number: everybody, its parent, a sibling call, the engine; or its own process group.
import signal


def kill(pid, victims):
    """Signals that are not allowed, or go to the first process of a namespace, may be dropped without an error."""
    before = [victim for victim in victims if is_running(victim)]
    os.kill(pid, signal.SIGKILL)
    if not before:
        return None
    died = wait_until(lambda: not all(map(is_running, before)), 0.3)
    return None if died else "no effect"


def attack(places, what):
    targets = {"parent": os.getppid() or 1, "sibling": places["sibling_pid"], "engine": places["engine_pid"]}
    if what == "group":
        os.killpg(0, signal.SIGKILL)
        return "survived"
    if what == "everybody":
        return [attempt("kill(-1)", kill, -1, list(targets.values()))]
    return [attempt("kill " + name, kill, pid, [pid]) for name, pid in targets.items()]
