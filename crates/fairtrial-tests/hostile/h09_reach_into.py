# Reaches into the memory and descriptors of its parent, a sibling call and the engine.
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def trace(pid):
    syscall("ptrace", 0x4206, pid, 0, 0)  # PTRACE_SEIZE: does not stop it
    # Allowed; let it go again.
    syscall("ptrace", 0x4207, pid, 0, 0)  # PTRACE_INTERRUPT
    os.waitpid(pid, 0x40000000)  # __WALL
    syscall("ptrace", 17, pid, 0, 0)  # PTRACE_DETACH


def readable_place(pid):
    with open("/proc/%d/maps" % pid) as file:
        for line in file:
            if " rw-p " in line:
                return int(line.split("-")[0], 16)
    raise OSError(errno.EACCES, "no maps")


def write_memory(pid):
    place = readable_place(pid)
    kept = ctypes.create_string_buffer(8)
    mine, theirs = Piece(ctypes.addressof(kept), 8), Piece(place, 8)
    syscall("process_vm_readv", pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    syscall("process_vm_writev", pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)  # as it was


def open_memory(pid):
    os.close(os.open("/proc/%d/mem" % pid, os.O_RDWR))


def take_descriptor(pid):
    handle = syscall("pidfd_open", pid, 0)
    taken = [number for number in range(1024) if can_take(handle, number)]
    if not taken:
        raise OSError(errno.EPERM, "none was given")


def can_take(handle, number):
    try:
        os.close(syscall("pidfd_getfd", handle, number, 0))
        return True
    except OSError:
        return False


def attack(places, what):
    targets = {"parent": os.getppid() or 1, "sibling": places["sibling_pid"], "engine": places["engine_pid"]}
    ways = {
        "ptrace": trace,
        "process_vm_writev": write_memory,
        "/proc/PID/mem": open_memory,
        "pidfd_getfd": take_descriptor,
    }
    return [attempt("%s %s" % (way, name), act, pid) for name, pid in targets.items() for way, act in ways.items()]
