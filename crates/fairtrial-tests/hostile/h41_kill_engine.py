# Kills those who serve it: launcher, zygote, the first process.
import signal


def attack(places, what):
    def kill(pid):
        os.kill(pid, signal.SIGKILL)
        return "no effect" if not wait_until(lambda: not is_running(pid), 0.5) else None

    pids = {"launcher": places["launcher_pid"], "zygote": places["zygote_pid"], "init": 1}
    return [attempt("kill " + what, kill, pids[what])]
