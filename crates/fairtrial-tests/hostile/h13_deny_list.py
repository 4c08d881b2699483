# Calls what SB-20 denies to everybody: ways to reach the kernel's less trodden parts.
import fcntl
import termios


def ring():
    os.close(syscall("io_uring_setup", 1, ctypes.create_string_buffer(120)))


def key():
    syscall("add_key", b"user", b"sin", b"x", 1, -2)  # in the process's own keyring


def read_keyring():
    syscall("keyctl", 0, -3, 1)  # KEYCTL_GET_KEYRING_ID of the session, made if there is none


def program():
    attributes = ctypes.create_string_buffer(128)
    attributes[0], attributes[4], attributes[8], attributes[12] = 2, 4, 8, 1  # an array of one entry
    os.close(syscall("bpf", 0, attributes, 128))


def counter():
    attributes = ctypes.create_string_buffer(128)
    attributes[0], attributes[4] = 1, 128  # PERF_TYPE_SOFTWARE, the size
    attributes[40] = 0x61  # disabled; the kernel and the hypervisor are left out
    os.close(syscall("perf_event_open", attributes, 0, -1, -1, 0))


def faults():
    os.close(syscall("userfaultfd", 1))  # UFFD_USER_MODE_ONLY


def traced():
    child = os.fork()
    if child == 0:
        try:
            syscall("ptrace", 0, 0, 0, 0)  # PTRACE_TRACEME
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


def personality():
    checked(libc.personality(0x0040000))  # ADDR_NO_RANDOMIZE
    libc.personality(0)


def type_for_others():
    master, slave = os.openpty()
    try:
        if os.fork() == 0:
            os.setsid()
            try:
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
                fcntl.ioctl(slave, termios.TIOCSTI, b"x")
                os._exit(0)
            except OSError as error:
                os._exit(error.errno)
        code = os.waitstatus_to_exitcode(os.wait()[1])
        if code:
            raise OSError(code, os.strerror(code))
    finally:
        os.close(master)
        os.close(slave)


def attack(places, what):
    ways = {
        "io_uring": ring,
        "add_key": key,
        "keyctl": read_keyring,
        "bpf": program,
        "perf_event_open": counter,
        "userfaultfd": faults,
        "ptrace": traced,
        "personality": personality,
        "TIOCSTI": type_for_others,
    }
    return [attempt(name, act) for name, act in ways.items()]
