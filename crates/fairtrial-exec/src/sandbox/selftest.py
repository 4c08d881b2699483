# What a confined worker can still do, found out by trying: the same attempts as of a confined command
# (linux/selftest.rs). Run as the source of a call, by the engine itself.
import ctypes
import os
import resource
import socket
import sys
import time

PTRACE_SEIZE = 0x4206
CLONE_NEWUSER = 0x10000000
EFAULT = 14


def attempts(engine, canary, port, device, inode):
    """Whether each was refused."""
    tried = {
        "connect": lambda: socket.create_connection(("127.0.0.1", port), 1).close(),
        "kill_engine": lambda: os.kill(engine, 0),
        "limit_engine": lambda: resource.prlimit(engine, resource.RLIMIT_NOFILE),
        "ptrace_engine": lambda: checked(libc().ptrace(PTRACE_SEIZE, engine, None, None)),
        "read_memory": lambda: read_memory(engine),
        "read_environ": lambda: read("/proc/%d/environ" % engine),
        "read_canary": lambda: read(canary),
        "write_canary": lambda: os.close(os.open(canary, os.O_WRONLY)),
        "gain_nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 1),
        "keep_descriptor": lambda: find_descriptor(device, inode),
        # The last: whoever succeeds has other privileges from then on. This one takes none.
        "unshare": lambda: checked(libc().unshare(CLONE_NEWUSER)),
    }
    return {name: was_refused(attempt) for name, attempt in tried.items()}


def was_refused(attempt):
    try:
        attempt()
    except OSError:
        return True
    return False


def libc():
    library = ctypes.CDLL(None, use_errno=True)
    library.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    library.ptrace.restype = ctypes.c_long
    return library


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")


def read(path):
    with open(path, "rb") as file:
        file.read(1)


def read_memory(pid):
    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    place = ctypes.create_string_buffer(1)
    local, remote = Vector(ctypes.addressof(place), 1), Vector(8, 1)
    call = libc().process_vm_readv
    call.restype = ctypes.c_ssize_t
    count = call(
        pid, ctypes.byref(local), ctypes.c_ulong(1), ctypes.byref(remote), ctypes.c_ulong(1), ctypes.c_ulong(0)
    )
    # An address that is not there: who may look is told so, who may not is told that.
    if count < 0 and ctypes.get_errno() != EFAULT:
        raise OSError(ctypes.get_errno(), "refused")


def find_descriptor(device, inode):
    """Of a file that the engine has open."""
    for number in range(3, 4096):
        try:
            facts = os.fstat(number)
        except OSError:
            continue
        if (facts.st_dev, facts.st_ino) == (device, inode):
            return
    raise OSError("none")


def use_memory(most):
    held, step = [], 1 << 20
    while len(held) * step < most:
        held.append(b"x" * step)


def use_processes(most):
    for _ in range(most):
        try:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        except OSError:
            break
    # Whoever limits them has a moment to say so, by a signal.
    sys.stdout.flush()
    time.sleep(0.2)
