//! Programs that attack what calls share, and the honest one beside them.

/// Uses what calls share: a thread, a pipe, a program, a file of its own, some memory and some processor time.
pub(super) const INNOCENT: &str = r#"
import os, subprocess, threading
def f(x):
    read, write = os.pipe()
    thread = threading.Thread(target=os.write, args=(write, b"through the pipe"))
    thread.start()
    thread.join()
    assert os.read(read, 100) == b"through the pipe"
    with open("own", "w") as own:
        own.write("x" * 10000)
    assert subprocess.run(["true"]).returncode == 0
    block = bytearray(b"y") * (4 << 20)
    total = 0
    for n in range(200_000):
        total += n
    return [x, len(block)]
"#;

/// As [`INNOCENT`], and what a call has to itself where it has mounts and quotas of its own: shared memory, semaphores,
/// System V objects (refused at `confined`), watches of files, timers, queued signals, modes of its own files.
pub(super) const DELICATE: &str = r#"
import ctypes, fcntl, multiprocessing, os, signal, subprocess, threading
from multiprocessing import shared_memory
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    assert result >= 0, os.strerror(ctypes.get_errno())
    return result
def round(watch):
    memory = shared_memory.SharedMemory("fairtrial-delicate", create=True, size=4096)
    memory.buf[:5] = b"hello"
    with multiprocessing.Lock():
        again = shared_memory.SharedMemory("fairtrial-delicate")
        assert bytes(again.buf[:5]) == b"hello"
    queue = libc.msgget(1234, 0o1600)
    if queue < 0:
        assert ctypes.get_errno() == 1, "only `confined` refuses that"
    with open("own", "w") as own:
        own.write("x" * 10000)
    os.chmod("own", 0o600)
    assert len(os.read(watch, 100)) > 0
    for _ in range(10):
        timer = ctypes.c_void_p()
        check(libc.timer_create(0, None, ctypes.byref(timer)))
        check(libc.timer_delete(timer))
        check(libc.sigqueue(os.getpid(), signal.SIGRTMIN, None))
        assert signal.sigwait({signal.SIGRTMIN}) == signal.SIGRTMIN
    with open("own") as own:
        fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert len(own.read()) == 10000
    writer = os.open("fifo", os.O_RDWR)
    os.write(writer, b"mine")
    assert os.read(writer, 100) == b"mine"
    os.close(writer)
    if queue >= 0:
        check(libc.msgctl(queue, 0, None))
    again.close()
    memory.close()
    memory.unlink()
def f(x):
    libc.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    watch = check(libc.inotify_init())
    check(libc.inotify_add_watch(watch, b".", 2))
    os.mkfifo("fifo")
    for _ in range(50):
        round(watch)
    assert subprocess.run(["true"]).returncode == 0
    block = bytearray(b"y") * (4 << 20)
    return [x, len(block)]
"#;

/// What attackers have in common. Each ends by itself after some seconds, or at its limits.
pub(super) const PRELUDE: &str = r#"
import array, ctypes, fcntl, os, resource, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
END = time.monotonic() + 4
def others():
    own = {os.getpid()}
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in own]
def until_end(step, pause=0.001):
    while time.monotonic() < END:
        try:
            step()
        except (OSError, ValueError, OverflowError):
            pass
        time.sleep(pause)
def each(act):
    def step():
        for pid in others():
            try:
                act(pid)
            except (OSError, ValueError):
                pass
    until_end(step)
    return "tried"
"#;

/// An attacker: its name and its function `f`.
pub(super) const ATTACKERS: &[(&str, &str)] = &[
    (
        "limits of others",
        r#"
def f():
    def act(pid):
        for what in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_AS):
            try:
                resource.prlimit(pid, what, (0, 0))
            except (OSError, ValueError):
                pass
    return each(act)
"#,
    ),
    (
        "scheduling of others",
        r#"
def f():
    def act(pid):
        for way in (lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
                    lambda: os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))}),
                    lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))):
            try:
                way()
            except OSError:
                pass
    return each(act)
"#,
    ),
    (
        "signals to others",
        r#"
def f():
    def act(pid):
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGXCPU):
            try:
                os.kill(pid, number)
            except OSError:
                pass
    return each(act)
"#,
    ),
    (
        "descriptors in flight",
        r#"
def f():
    held = []
    def fill():
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        held.append((left, right))
        left.setblocking(False)
        numbers = array.array("i", [0] * 200)
        while True:
            left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
    until_end(fill)
    return len(held)
"#,
    ),
    (
        "pipe pages",
        r#"
def f():
    held = []
    def fill():
        read, write = os.pipe()
        held.append((read, write))
        fcntl.fcntl(write, 1031, 1 << 20)  # F_SETPIPE_SZ
    until_end(fill)
    return len(held)
"#,
    ),
    (
        "pending signals",
        r#"
def f():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    libc.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    until_end(lambda: [libc.sigqueue(os.getpid(), signal.SIGRTMIN, None) for _ in range(10000)])
    return "tried"
"#,
    ),
    (
        "inotify",
        r#"
def f():
    held = []
    until_end(lambda: held.append(libc.inotify_init()))
    return len(held)
"#,
    ),
    (
        "message queues and shared memory",
        r#"
def f():
    def fill():
        libc.shmget(0, 4096, 0o1600)
        libc.msgget(0, 0o1600)
        libc.semget(0, 1, 0o1600)
    made = 0
    for _ in range(200):
        fill()
        made += 1
    return made
"#,
    ),
    (
        "keys",
        r#"
def f():
    for n in range(300):
        libc.syscall(248, b"user", b"key%d" % n, b"x" * 50, 50, -3)  # add_key
    return "tried"
"#,
    ),
    (
        "timers",
        r#"
def f():
    timer = ctypes.c_void_p()
    until_end(lambda: [libc.timer_create(0, None, ctypes.byref(timer)) for _ in range(10000)])
    return "tried"
"#,
    ),
    (
        "namespaces",
        r#"
def f():
    def unshare():
        if os.fork() == 0:
            libc.unshare(0x10000000)  # CLONE_NEWUSER
            time.sleep(30)
            os._exit(0)
    until_end(unshare, 0)
    return "tried"
"#,
    ),
    (
        "locked memory",
        r#"
def f():
    held = []
    def lock():
        block = bytearray(1 << 20)
        held.append(block)
        if libc.mlock(ctypes.byref(ctypes.c_char.from_buffer(block)), ctypes.c_size_t(len(block))):
            time.sleep(0.01)
    until_end(lock)
    return len(held)
"#,
    ),
    (
        "asynchronous input and output",
        r#"
def f():
    def set_up():
        context = ctypes.c_ulong(0)
        libc.syscall(206, 4096, ctypes.byref(context))  # io_setup
    until_end(set_up)
    return "tried"
"#,
    ),
    (
        "terminals",
        r#"
def f():
    held = []
    until_end(lambda: held.append(os.openpty()))
    return len(held)
"#,
    ),
    (
        "leases",
        r#"
def f():
    held = []
    for name in ("/usr/bin/true", "/bin/sh", "/etc/passwd", os.__file__):
        held.append(os.open(name, os.O_RDONLY))
    def lease():
        for file in held:
            for kind in (fcntl.F_WRLCK, fcntl.F_RDLCK):
                try:
                    fcntl.fcntl(file, 1024, kind)  # F_SETLEASE
                except OSError:
                    pass
    until_end(lease)
    return "tried"
"#,
    ),
    (
        "children of the launcher",
        r#"
def f():
    CLONE_PARENT = 0x8000
    def flood():
        for _ in range(1000):
            if libc.syscall(56, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0) == 0:
                os._exit(0)
    until_end(flood, 0)
    return "tried"
"#,
    ),
    (
        "orphans without end",
        r#"
def f():
    def orphan():
        middle = os.fork()
        if middle == 0:
            for _ in range(20):
                if os.fork() == 0:
                    os._exit(0)
            os._exit(0)
        os.waitpid(middle, 0)
    until_end(orphan, 0)
    return "tried"
"#,
    ),
    (
        "locks without end",
        r#"
def f():
    held = []
    def lock():
        file = open("locked-%d" % len(held), "w")
        held.append(file)
        for at in range(0, 4000, 2):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
    until_end(lock)
    time.sleep(60)  # to its deadline, at which locks are looked at
"#,
    ),
    (
        "a connection that lingers, for the engine to close",
        r#"
def f():
    server = socket.create_server(("127.0.0.1", 0))
    engine = [int(n) for n in os.listdir("/proc/self/fd")]
    engine = max(n for n in engine if n != server.fileno() and os.readlink("/proc/self/fd/%d" % n).startswith("socket:"))
    engine = socket.socket(fileno=os.dup(engine))
    def send():
        client = socket.create_connection(server.getsockname())
        client.setblocking(False)
        try:
            while client.send(b"x" * 65536):
                pass
        except BlockingIOError:
            pass
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 70))
        engine.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [client.fileno()]))])
        client.close()
    until_end(send)
    return "tried"
"#,
    ),
    (
        "control groups of others",
        r#"
def f():
    CLONE_INTO_CGROUP = 0x200000000
    groups = [place for place, _, files in os.walk("/sys/fs/cgroup") if "cgroup.procs" in files]
    def enter():
        for group in groups:
            fd = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
            arguments = struct.pack("11Q", CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, fd)
            if libc.syscall(435, arguments, len(arguments)) == 0:
                os._exit(0)
            os.close(fd)
    until_end(enter)
    return "tried"
"#,
    ),
    (
        "processes",
        r#"
def f():
    def fork():
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    until_end(fork, 0)
    return "tried"
"#,
    ),
    (
        "output without end",
        r#"
def f():
    while True:
        os.write(1, b"x" * 65536)
"#,
    ),
    (
        "a full scratch directory",
        r#"
def f():
    with open("big", "wb") as big:
        while True:
            big.write(b"x" * (1 << 20))
"#,
    ),
    (
        "memory",
        r#"
def f():
    held = []
    while True:
        held.append(bytearray(b"x") * (8 << 20))
"#,
    ),
];

/// Attackers whom only mounts and quotas of a call's own keep from innocents.
pub(super) const AGAINST_FILES_AND_QUOTAS: &[(&str, &str)] = &[
    (
        "modes and times of others' directories",
        r#"
def f():
    own = os.getcwd()
    def change():
        above = own
        while "spill" in above:
            above = os.path.dirname(above)
            for name in os.listdir(above) if "spill" in above else []:
                path = os.path.join(above, name)
                if not own.startswith(path):
                    for way in (lambda: os.utime(path, (0, 0)), lambda: os.chmod(path, 0)):
                        try:
                            way()
                        except OSError:
                            pass
    until_end(change)
    return "tried"
"#,
    ),
    (
        "reading others' directories",
        r#"
def f():
    own = os.getcwd()
    held = []
    def reach():
        above = own
        while "spill" in above:
            above = os.path.dirname(above)
            for name in os.listdir(above) if "spill" in above else []:
                place = os.path.join(above, name)
                for name in os.listdir(place) if not own.startswith(place) else []:
                    file = os.open(os.path.join(place, name), os.O_RDONLY | os.O_NONBLOCK)
                    held.append(file)
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    os.read(file, 4096)
    until_end(reach)
    return len(held)
"#,
    ),
    (
        "shared memory of others",
        r#"
def f():
    def clear():
        for name in os.listdir("/dev/shm"):
            path = os.path.join("/dev/shm", name)
            with open(path, "r+b") as file:
                file.write(b"spoilt")
            os.unlink(path)
    until_end(clear)
    return "tried"
"#,
    ),
    (
        "System V objects of others",
        r#"
def f():
    def remove():
        with open("/proc/sysvipc/msg") as table:
            for line in table.read().splitlines()[1:]:
                libc.msgctl(int(line.split()[1]), 0, None)
    until_end(remove, 0)
    return "tried"
"#,
    ),
    (
        "watches of files",
        r#"
def f():
    held = []
    def fill():
        held.append(libc.inotify_init())
        for name in os.listdir("/usr/bin"):
            libc.inotify_add_watch(held[0], b"/usr/bin/" + name.encode(), 2)
    until_end(fill)
    return len(held)
"#,
    ),
];
