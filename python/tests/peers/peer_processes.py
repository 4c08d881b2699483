"""Finds and ends the processes a case started, by a mark in their environment."""

import os
import signal
import time

MARK = "FAIRTRIAL_PEERS_MARK"


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def marked(mark):
    """Processes that were started with this mark, except the one that asks."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as file:
                if mark.encode() in file.read() and alive(int(name)):
                    found.append(int(name))
        except OSError:
            pass
    return found


def descendants(pid):
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
            except OSError:
                pass
    found = list(children.get(pid, []))
    for child in found:
        found += children.get(child, [])
    return found


def end(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def end_marked(mark, seconds=2):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = marked(mark)
        if not found:
            return
        for pid in found:
            end(pid)
        time.sleep(0.02)


def wait_for(condition, seconds):
    """Whether the condition came true in time."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
