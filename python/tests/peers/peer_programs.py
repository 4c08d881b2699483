"""The programs of test_peers.py: the same file is imported by the peers' workers and given to Fairtrial."""

import atexit
import json
import os
import resource
import subprocess
import sys
import threading
import time


def one():
    return 1


def process():
    return os.getpid()


def nap(seconds):
    time.sleep(seconds)
    return seconds


def sign_and_nap(directory, seconds):
    """Leaves a file named by its process id, so that others can see that it runs, and who it is."""
    with open(os.path.join(directory, str(os.getpid())), "w"):
        pass
    time.sleep(seconds)
    return seconds


def slow_atexit():
    atexit.register(time.sleep, 30)
    return 1


def slow_thread():
    threading.Thread(target=time.sleep, args=(30,), daemon=False).start()
    return 1


def abort_after(seconds):
    time.sleep(seconds)
    os.abort()


def pollute():
    os.chdir("/")
    sys.path.insert(0, "/polluted")
    os.environ["POLLUTED"] = "1"
    json.polluted = 1


def polluted():
    seen = {
        "cwd": os.getcwd() == "/",
        "environ": "POLLUTED" in os.environ,
        "module global": hasattr(json, "polluted"),
        "sys.path": "/polluted" in sys.path,
    }
    return [name for name in seen if seen[name]]


def secrets(names):
    with open("/proc/self/environ", "rb") as file:
        at_start = file.read()
    places = {
        "os.environ": any(name in os.environ for name in names),
        "/proc/self/environ": any(name.encode() + b"=" in at_start for name in names),
    }
    return [place for place in places if places[place]]


def variables(names):
    return {name: os.environ[name] for name in names if name in os.environ}


def escape():
    """A grandchild in a session of its own, whose parent is gone; says its process id."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        grandchild = os.fork()
        if grandchild == 0:
            os.close(reading)
            os.close(writing)
            time.sleep(30)
        else:
            os.write(writing, str(grandchild).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return int(pipe.read())


def hang():
    wait_for_rain()


def wait_for_rain():
    time.sleep(30)


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def unreadable():
    return Unreadable()


class Opens:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def opens(path):
    """Whoever unpickles the answer makes a file."""
    return Opens(path)


def misleading():
    raise KeyError("MemoryError")


def long_message():
    raise ValueError("x" * 100000)


def talk_and_abort():
    print("said by print")
    os.write(1, b"said by write\n")
    subprocess.run(["echo", "said by a child"])
    os.abort()


def peak_after(size):
    """Uses `size` bytes; says the peak a program can read of itself."""
    len(bytearray(b"x") * size)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
