"""Looks for what the host did not mean to tell, in every environment within reach."""
import json
import os
import subprocess
import time


def text_of(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        return type(error).__name__


def parent(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def launcher():
    return os.getppid()


def below(root):
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    parents = {pid: parent(pid) for pid in pids}
    found = [root]
    for pid in found:
        found.extend(child for child in pids if parents[child] == pid)
    return found


def report(names):
    pids = below(launcher())
    seen = [[name, text_of("/proc/%d/%s" % (pid, name))] for pid in pids for name in names]
    return {"processes": pids, "text": seen + [dict(os.environ)]}


def wait_for_three(directory, mine):
    """Reports once all three calls run; gives up after a while."""
    open(os.path.join(directory, mine + ".here"), "w").close()
    end = time.monotonic() + 20
    while sum(name.endswith(".here") for name in os.listdir(directory)) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    found = report(["environ"])
    open(os.path.join(directory, mine + ".done"), "w").close()
    while sum(name.endswith(".done") for name in os.listdir(directory)) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    return found


def everything():
    found = report(["environ", "cmdline"])
    found["variables"] = sorted(name for name in os.environ if name.startswith("FAIRTRIAL"))
    found["files"] = os.listdir(os.environ["TMPDIR"])
    return found


def read_the_host():
    # One that speaks has left its exec behind: in the middle of it a process has no environment.
    pipe = subprocess.PIPE
    sibling = subprocess.Popen(["sh", "-c", "echo; read line"], stdin=pipe, stdout=pipe)
    sibling.stdout.readline()
    host = parent(launcher())
    found = {
        "sibling": "readable" if "PATH=" in text_of("/proc/%d/environ" % sibling.pid) else "not",
        "host_is_fairtrial": "fairtrial" in text_of("/proc/%d/comm" % host),
        "host": text_of("/proc/%d/environ" % host),
        "launcher": text_of("/proc/%d/environ" % launcher()),
    }
    sibling.kill()
    return found
