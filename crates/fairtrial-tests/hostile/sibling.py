# No sinner: a call beside the others. It must end well, with everything of its own as it was.
import json
import os
import resource
import time


def condition():
    return [os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_NOFILE)]


def attack(name):
    before = condition()
    with open(os.path.join(os.environ["TMPDIR"], "kept"), "w") as file:
        file.write("mine")
    with open(name + ".part", "w") as file:
        json.dump({"pid": os.getpid(), "scratch": os.environ["TMPDIR"]}, file)
    os.rename(name + ".part", name + ".begun")
    give_up = time.monotonic() + 100
    while not os.path.exists(name + ".gate"):
        if time.monotonic() > give_up:
            return "nobody opened the gate"
        time.sleep(0.005)
    with open(os.path.join(os.environ["TMPDIR"], "kept")) as file:
        if file.read() != "mine" or os.listdir(os.environ["TMPDIR"]) != ["kept"]:
            return "its scratch was changed"
    return "fine" if condition() == before else "changed: %s, then %s" % (before, condition())
