# Put before every Python program here: a name by which what it leaves is found, and how an attempt is told.
import ctypes
import errno
import os
import platform
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(15, b"sin", 0, 0, 0)  # PR_SET_NAME: children inherit it

TOO_LONG = 300  # seconds; nothing here is meant to see their end
_X86, _ARM = 0, 1
_NUMBERS = {
    "ptrace": (101, 117),
    "mount": (165, 40),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "setns": (308, 268),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "clone3": (435, 435),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "perf_event_open": (298, 241),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "sched_setattr": (314, 274),
    "process_madvise": (440, 440),
}


def syscall(name, *args):
    """The system call's result, or OSError."""
    number = _NUMBERS[name][_ARM if platform.machine() == "aarch64" else _X86]
    args = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return checked(libc.syscall(ctypes.c_long(number), *args))


def checked(result):
    """A C function's result, or OSError."""
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def attempt(what, act, *args):
    """`[what, how it was refused]`, or `[what, "ALLOWED"]`. `act` may return a text: there was no effect."""
    try:
        told = act(*args)
    except OSError as error:
        return [what, errno.errorcode.get(error.errno, "errno %s" % error.errno)]
    return [what, told if isinstance(told, str) else "ALLOWED"]


def is_running(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(holds, seconds=10):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.002)
    return holds()


def linger():
    """What a child does that means to stay."""
    end = time.monotonic() + TOO_LONG
    while time.monotonic() < end:
        time.sleep(1)
    os._exit(0)
