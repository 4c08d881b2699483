# Gives itself real-time priority; or changes priority, processors, limits and memory of its parent, the engine and a
# sibling call by every system call that takes the number of a process.
import resource
import struct

PRIO_PGRP, PRIO_USER = 1, 2
IOPRIO_PROCESS, IOPRIO_GROUP, IOPRIO_USER = 1, 2, 3
IDLE_CLASS = 3 << 13
KEEP_LIMIT = ctypes.c_void_p(None)


def real_time():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def scheduling(pid):
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
    attributes = ctypes.create_string_buffer(struct.pack("=IIQiIQQQ", 48, 0, 0, 19, 0, 0, 0, 0))
    syscall("sched_setattr", pid, attributes, 0)


def advise(pid):
    handle = syscall("pidfd_open", pid, 0)
    piece = ctypes.create_string_buffer(struct.pack("=QQ", 1 << 20, 4096))
    try:
        syscall("process_madvise", handle, piece, 1, 20, 0)  # MADV_COLD
    finally:
        os.close(handle)


def take_descriptor(pid):
    handle = syscall("pidfd_open", pid, 0)
    try:
        os.close(syscall("pidfd_getfd", handle, 2, 0))
    finally:
        os.close(handle)


def count_events(pid):
    attributes = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 128, 1) + bytes(112))  # software: task clock
    os.close(syscall("perf_event_open", attributes, pid, -1, -1, 0))


def group_of(pid):
    """The process group of another process. One whose leader is outside of this process namespace has no number here:
    0 would be the caller's own group."""
    return os.getpgid(pid) or pid


WAYS = {
    "prlimit cpu": lambda pid: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)),
    "prlimit files": lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, (12, 12)),
    "prlimit size": lambda pid: resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0)),
    "prlimit read": lambda pid: resource.prlimit(pid, resource.RLIMIT_CORE),
    "sched_setaffinity": lambda pid: os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))}),
    "sched_setscheduler": lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
    "sched_setparam": lambda pid: os.sched_setparam(pid, os.sched_param(0)),
    "sched_setattr": scheduling,
    "setpriority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "setpriority group": lambda pid: os.setpriority(PRIO_PGRP, group_of(pid), 19),
    "ioprio_set": lambda pid: syscall("ioprio_set", IOPRIO_PROCESS, pid, IDLE_CLASS),
    "ioprio_set group": lambda pid: syscall("ioprio_set", IOPRIO_GROUP, group_of(pid), IDLE_CLASS),
    "move_pages": lambda pid: syscall("move_pages", pid, 0, KEEP_LIMIT, KEEP_LIMIT, KEEP_LIMIT, 0),
    "migrate_pages": lambda pid: syscall("migrate_pages", pid, 0, KEEP_LIMIT, KEEP_LIMIT),
    "process_madvise": advise,
    "pidfd_getfd": take_descriptor,
    "kcmp": lambda pid: syscall("kcmp", os.getpid(), pid, 1, 0, 0),
    "perf_event_open": count_events,
}


def targets(places):
    named = {name: places[name + "_pid"] for name in ("engine", "launcher", "zygote", "sibling")}
    named["parent"] = os.getppid() or 1
    return {name: pid for name, pid in named.items() if pid}


def attack(places, what):
    if what == "real_time":
        return [attempt("SCHED_FIFO", real_time)]
    if what == "own":
        return own()
    tried = [attempt("%s %s" % (way, name), act, pid) for name, pid in targets(places).items() for way, act in WAYS.items()]
    tried.append(attempt("setpriority user", os.setpriority, PRIO_USER, 0, 19))
    tried.append(attempt("ioprio_set user", syscall, "ioprio_set", IOPRIO_USER, 0, IDLE_CLASS))
    return tried


def own():
    """What a program does to itself is its own business, by number or by 0."""
    for pid in (0, os.getpid()):
        os.sched_setaffinity(pid, os.sched_getaffinity(pid))
        os.sched_setparam(pid, os.sched_param(0))
        resource.prlimit(pid, resource.RLIMIT_CORE, resource.prlimit(pid, resource.RLIMIT_CORE))
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))
    resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))
    return "done"
