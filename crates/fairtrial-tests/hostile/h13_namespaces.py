# Makes namespaces of its own, by every way there is, and enters others'.
NEW = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000}
CLONE_ARGS_BYTES = 88


def in_child(act):
    """Runs it where it can do no harm to this process; its errno is ours."""
    child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


def clone3(flags):
    terms = (ctypes.c_uint64 * (CLONE_ARGS_BYTES // 8))()
    terms[0], terms[4] = flags, 17  # SIGCHLD
    child = syscall("clone3", ctypes.byref(terms), CLONE_ARGS_BYTES)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def enter(kind):
    namespace = os.open("/proc/self/ns/" + kind, os.O_RDONLY)
    try:
        syscall("setns", namespace, 0)
    finally:
        os.close(namespace)


def mount():
    os.mkdir("place")
    syscall("mount", b"none", b"place", b"tmpfs", 0, None)
    libc.umount2(b"place", 2)  # MNT_DETACH


def attack(places, what):
    told = [attempt("unshare " + kind, in_child, lambda: syscall("unshare", flag)) for kind, flag in NEW.items()]
    # A user namespace brings the others along.
    told += [attempt("unshare user and " + kind, in_child, lambda: syscall("unshare", NEW["user"] | NEW[kind])) for kind in NEW]
    told += [attempt("clone3 user", clone3, NEW["user"])]
    told += [attempt("setns " + kind, in_child, lambda: enter(kind)) for kind in ("mnt", "net", "ipc")]
    return told + [attempt("mount", in_child, mount)]
