# Tries what a stranger should not be able to do, and says how each attempt ended.
import ctypes
import json
import os
import resource
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def system_call(number, *arguments):
    call("syscall", ctypes.c_long(number), *map(ctypes.c_long, arguments))


def read(path):
    with open(path, "rb") as file:
        file.read(1)


def write(path):
    with open(path, "ab") as file:
        file.write(b"x")


def abstract_socket(name):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + name)


def tcp(port):
    socket.create_connection(("127.0.0.1", port), 2).close()


def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", ("127.0.0.1", 9))


def process_memory(pid):
    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    byte = ctypes.create_string_buffer(1)
    here, there = Vector(ctypes.addressof(byte), 1), Vector(8, 1)
    if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) < 0:
        if ctypes.get_errno() != 14:  # EFAULT: it was allowed to look, and there was nothing
            raise OSError(ctypes.get_errno(), "process_vm_readv")


def raise_core_limit():
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))


def f(engine, canary, port, name):
    attempts = {
        "write scratch": lambda: write("mine"),
        "write /dev/null": lambda: write("/dev/null"),
        "write /dev/shm": lambda: (write("/dev/shm/ft-%d" % os.getpid()), os.unlink("/dev/shm/ft-%d" % os.getpid())),
        "write elsewhere": lambda: write(canary),
        "make elsewhere": lambda: os.mkdir(canary + ".dir"),
        "remove elsewhere": lambda: os.unlink(canary),
        "read elsewhere": lambda: read(canary),
        "signal the engine": lambda: os.kill(engine, 0),
        "environment of the engine": lambda: read("/proc/%d/environ" % engine),
        "memory of the engine": lambda: process_memory(engine),
        "own clear_refs": lambda: write("/proc/self/clear_refs"),
        "abstract socket": lambda: abstract_socket(name),
        "tcp": lambda: tcp(port),
        "udp": udp,
        "packet socket": lambda: socket.socket(17, socket.SOCK_RAW).close(),
        "netlink socket": lambda: socket.socket(16, socket.SOCK_RAW).close(),
        "mount": lambda: call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None),
        "mount namespace": lambda: call("unshare", 0x20000),
        "io_uring": lambda: system_call(425, 1, ctypes.addressof(ctypes.create_string_buffer(120))),
        "keyring": lambda: system_call(250 if os.uname().machine == "x86_64" else 219, 0, -3, 1),
        "personality": lambda: call("personality", 0x0040000),
        "priority": lambda: os.nice(-5),
        "real time": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
        "lock memory": lambda: call("mlockall", 3),
        "higher limit": raise_core_limit,
        "another user": lambda: os.setuid(1),
    }
    results = {}
    for what, attempt in attempts.items():
        try:
            attempt()
            results[what] = "allowed"
        except OSError:
            results[what] = "denied"
        except ValueError:  # of `setrlimit`
            results[what] = "denied"
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines())
    results["privileges"] = [status[key].strip() for key in ("CapPrm", "CapEff", "CapInh", "CapAmb", "NoNewPrivs")]
    results["oom score"] = open("/proc/self/oom_score_adj").read().strip()
    return results


if __name__ == "__main__":
    print(json.dumps(f(*json.loads(sys.argv[1]))))
