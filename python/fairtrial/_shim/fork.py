# Forking: workers that are children of the launcher in the eyes of the kernel, and what a process asks of the kernel
# for itself. Runs in the zygote and, for the last steps, in the worker just forked.
import errno as _errno
import os as _os
from os import _exit, close, getpid, getppid
from struct import Struct as _Struct
from time import sleep as _sleep

try:
    import ctypes as _ctypes
except ImportError:  # an interpreter built without libffi: forks twice, and does without prctl
    _ctypes = None

_NUMBER_AND_PID = _Struct("<Ii")
_SIGKILL = 9

_libc = _ctypes.PyDLL(None, use_errno=True) if _ctypes else None
_memmove = _ctypes.memmove if _ctypes else None
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_TID_ADDRESS = 1, 36, 40
_CLONE_PARENT, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
_CLONE_NEWPID = 0x20000000
_SYS_CLONE3 = 435
# Number of `clone`, and whether the TLS argument comes before the child's tid address.
_SYS_CLONE = {"x86_64": (56, False), "aarch64": (220, True)}


def _prctl(option, argument, _call=_libc.prctl if _libc else None):
    if _call:
        _call(option, argument, 0, 0, 0)


if _libc:
    _libc.prctl.argtypes = [_ctypes.c_int] + [_ctypes.c_ulong] * 4
    _syscall = _libc["syscall"]
    _syscall.argtypes, _syscall.restype = [_ctypes.c_long] + [_ctypes.c_uint64] * 6, _ctypes.c_long


class Forker:
    """Makes workers that are, in the eyes of the kernel, children of the zygote's parent: the launcher.

    What a fork needs is made once: after one, each page that is written is a fault, in the zygote and in the worker.
    """

    def __init__(self):
        self.tid_address = self._find_tid_address()
        self.ways = [self._clone3, self._clone] if self.tid_address else []
        self.parent = getppid()
        if self.ways:
            flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
            self.arguments = (_ctypes.c_uint64 * 8)(flags, 0, self.tid_address)
            self.address = _ctypes.addressof(self.arguments)
            self.before = _ctypes.pythonapi.PyOS_BeforeFork
            self.in_child = _ctypes.pythonapi.PyOS_AfterFork_Child
            self.in_parent = _ctypes.pythonapi.PyOS_AfterFork_Parent

    def fork(self, init=None):
        """The worker's pid; 0 in the worker; a negative errno. Born in the namespace of processes of `init`, if any."""
        if init is not None and _libc.setns(init, _CLONE_NEWPID) < 0:
            return -_ctypes.get_errno()
        while self.ways:
            self.before()
            pid = self.ways[0]()
            error = _ctypes.get_errno() if pid < 0 else 0
            if pid == 0:
                self.in_child()
                return 0
            self.in_parent()
            if pid > 0 or error in (_errno.EAGAIN, _errno.ENOMEM):
                return pid if pid > 0 else -error
            del self.ways[0]  # unknown to this kernel, or forbidden by a seccomp filter
        return self._fork_twice()

    def _find_tid_address(self):
        """Where the C library keeps the tid of this thread: a child made behind its back must find its own there."""
        if not _libc:
            return 0
        address = _ctypes.c_uint64(0)
        if _libc.prctl(_PR_GET_TID_ADDRESS, _ctypes.addressof(address), 0, 0, 0) != 0 or not address.value:
            return 0
        # musl keeps a lock there; then only its own `fork` will do.
        return address.value if _ctypes.c_uint32.from_address(address.value).value == getpid() else 0

    def _clone3(self):
        return _syscall(_SYS_CLONE3, self.address, 64, 0, 0, 0, 0)

    def _clone(self):
        number, tls_first = _SYS_CLONE.get(_os.uname().machine, (None, False))
        if number is None:
            _ctypes.set_errno(_errno.ENOSYS)
            return -1
        last = (0, self.tid_address) if tls_first else (self.tid_address, 0)
        return _syscall(number, self.arguments[0], 0, 0, *last, 0)

    def _fork_twice(self):
        """The launcher is a subreaper: it inherits the child of a child that ends."""
        reader, writer = _os.pipe()
        try:
            middle = _os.fork()
        except OSError as error:
            close(reader)
            close(writer)
            return -error.errno
        if middle == 0:
            middle = getpid()
            try:
                pid = _os.fork()
            except OSError as error:
                pid = -error.errno
            if pid != 0:
                _os.write(writer, _NUMBER_AND_PID.pack(0, pid))
                _exit(0)
            close(reader)
            close(writer)
            _wait_for_other_parent(middle)
            return 0
        close(writer)
        answer = _os.read(reader, 8)
        close(reader)
        _os.waitpid(middle, 0)
        return _NUMBER_AND_PID.unpack(answer)[1] if len(answer) == 8 else -_errno.EAGAIN


def _wait_for_other_parent(first):
    """Until `first` has ended: a PR_SET_PDEATHSIG set before would fire at the hand-over."""
    while getppid() == first:
        _sleep(0.0002)


def _find_worker_id():
    """Where the environment block given to `execve` holds the placeholder of the worker's id, or 0."""
    if not _libc:
        return 0
    _libc.getenv.restype = _ctypes.c_void_p
    address = _libc.getenv(b"FAIRTRIAL_WORKER_ID")
    return address if address and len(_ctypes.string_at(address)) == 12 else 0


def _count_threads():
    try:
        return len(_os.listdir("/proc/self/task"))
    except OSError:
        return 1  # no /proc here, so no way to tell


def _shed_threads():
    """Goes on in a child: `fork` lets libraries (OpenBLAS, OpenMP) end their threads in good order, once."""
    parent, grandparent = getpid(), getppid()
    try:
        pid = _os.fork()
    except Warning:  # `-W error`: raised by CPython 3.12 in the parent, after the fork
        _exit(0)
    if pid != 0:
        _exit(0)
    _wait_for_other_parent(parent)
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if getppid() not in (grandparent, parent) and grandparent != 0:
        _exit(0)  # the launcher died in between


def _unbuffer_c_stdout():
    """What C code prints is seen at once too (EX-77)."""
    try:
        stream = _ctypes.c_void_p.in_dll(_libc, "stdout")
    except ValueError:
        return  # a macro in this C library
    _libc.setvbuf(stream, None, 2, _ctypes.c_size_t(0))


def _become_worker(parent):
    _os.setsid()
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if getppid() not in (parent, 0):  # 0: in a namespace of its own, where it dies with the init
        _exit(0)  # the launcher died before the line above
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


_PLAN_HEAD = _Struct("<III")
_PLAN_CALL = _Struct("<IIBBBB6s6Q")
_ALL_PLAIN = bytes(6)
_NOWHERE = (1 << 32) - 1
_PLAN_POINTER = _Struct("<II")
_BE_TRIED, _GIVE_SOMETHING = 1, 2


def run_plan(text, descriptors):
    """Issues the system calls that the launcher prepared (plan.rs): what confines this process is its business."""
    if not _libc:
        raise SetupFailed("cannot confine a worker: this interpreter has no `ctypes`")
    calls, pointers, size = _PLAN_HEAD.unpack_from(text)
    at = _PLAN_HEAD.size
    pointers_at = at + calls * _PLAN_CALL.size
    memory_at = pointers_at + pointers * _PLAN_POINTER.size
    memory = bytearray(text[memory_at : memory_at + size] or 1)  # a buffer of `ctypes` would be a type of its own
    base = _ctypes.addressof(_ctypes.c_char.from_buffer(memory))
    for place, to in _PLAN_POINTER.iter_unpack(text[pointers_at:memory_at]):
        _ctypes.c_uint64.from_address(base + place).value = base + to
    for number, result_to, step, must, times, counting, kinds, *values in _PLAN_CALL.iter_unpack(text[at:pointers_at]):
        if kinds != _ALL_PLAIN:
            for place, kind in enumerate(kinds):
                if kind == 1:
                    values[place] += base
                elif kind == 2:
                    values[place] = descriptors[values[place]]
                elif kind == 3:
                    values[place] = _ctypes.c_int32.from_address(base + values[place]).value
        for _ in range(times):
            result = _syscall(number, *values)
            if result < (must == _GIVE_SOMETHING) and must != _BE_TRIED:
                name = text[memory_at + size :].split(b"\0")[step].decode()
                raise SetupFailed("cannot confine it: %s: %s" % (name, _os.strerror(_ctypes.get_errno())))
            values[counting] += 1  # of no use after the last time
        if result_to != _NOWHERE:
            _ctypes.c_int32.from_address(base + result_to).value = result
