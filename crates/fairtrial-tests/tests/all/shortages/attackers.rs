//! Programs that use up something that calls share, each with an honest one that needs a little of it.

/// Such a pair, and the host it is about.
pub(super) struct Pair {
    /// What the engine calls it.
    pub(super) name: &'static str,
    /// Ends with `hold`.
    pub(super) attacker: &'static str,
    pub(super) innocent: &'static str,
    /// How it fares beside the attacker.
    pub(super) first_verdict: &'static str,
    pub(super) innocent_timeout_s: f64,
    /// Root's words for the shell, in the engine's working directory.
    pub(super) host: &'static str,
    /// Without user namespaces, which keep it from others.
    pub(super) shares_quotas: bool,
}

/// What attackers have in common. An attacker holds what it has until all innocents that began beside it are gone, whose ends
/// of the pipe close with them.
pub(super) const ATTACKER: &str = r#"
import array, ctypes, fcntl, os, resource, select, socket, struct, time
libc = ctypes.CDLL(None, use_errno=True)
END = time.monotonic() + 30
def fill(step, limit=1_000_000):
    for _ in range(limit):
        try:
            step()
        except OSError:
            return
def hold(pipe, place, innocents):
    os.mkdir(place + "/ready")
    seen = 0
    while time.monotonic() < END:
        word = os.read(pipe, 1) if select.select([pipe], [], [], 0.005)[0] else None
        seen += len(word or b"")
        if word == b"" and seen >= innocents:
            return "held"
        if word == b"":
            time.sleep(0.001)
    raise TimeoutError(f"{seen} innocents came")
def pipe_of(place):
    return os.open(place + "/here", os.O_RDONLY | os.O_NONBLOCK)
"#;

/// What innocents have in common: they begin when the attacker is ready, which is gone when they are run again.
pub(super) const INNOCENT: &str = r#"
import array, ctypes, fcntl, os, select, socket, struct, time
libc = ctypes.CDLL(None, use_errno=True)
def come(place):
    end = time.monotonic() + 30
    while not os.path.exists(place + "/ready"):
        if time.monotonic() > end:
            raise TimeoutError("no attacker is ready")
        time.sleep(0.001)
    try:
        os.write(os.open(place + "/here", os.O_WRONLY | os.O_NONBLOCK), b"x")
    except OSError:
        pass
def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
"#;

const PAIR: Pair = Pair {
    shares_quotas: false,
    name: "",
    attacker: "",
    innocent: "",
    first_verdict: "exception",
    innocent_timeout_s: 40.0,
    host: "",
};

const NEEDS_DESCRIPTORS: &str = r#"
def f(place, _):
    come(place)
    left, right = socket.socketpair()
    socket.send_fds(left, [b"x"], [0])
    return "had some"
"#;

pub(super) const SENT_DESCRIPTORS: Pair = Pair {
    name: "descriptors in flight",
    attacker: r#"
def f(place, innocents):
    pipe, held = pipe_of(place), []
    numbers = array.array("i", [0] * 50)
    def send():
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        held.append((left, right))
        left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
    fill(send)
    return hold(pipe, place, innocents)
"#,
    innocent: NEEDS_DESCRIPTORS,
    ..PAIR
};

pub(super) const SENT_IN_CIRCLES: Pair = Pair {
    name: "descriptors in flight",
    attacker: r#"
def f(place, innocents):
    pipe = pipe_of(place)
    def send():
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        held.append((left, right))
        for _ in range(5):
            numbers = array.array("i", [left.fileno(), right.fileno()] * 10)
            left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
    held = []
    fill(send)
    return hold(pipe, place, innocents)
"#,
    innocent: NEEDS_DESCRIPTORS,
    ..PAIR
};

pub(super) const INOTIFY: Pair = Pair {
    shares_quotas: true,
    name: "inotify",
    attacker: r#"
def f(place, innocents):
    pipe = pipe_of(place)
    while libc.inotify_init() >= 0:
        pass
    return hold(pipe, place, innocents)
"#,
    innocent: r#"
def f(place, _):
    come(place)
    checked(libc.inotify_init())
    return "had some"
"#,
    ..PAIR
};

pub(super) const TIMERS: Pair = Pair {
    shares_quotas: true,
    name: "timers",
    attacker: r#"
def f(place, innocents):
    pipe, timer = pipe_of(place), ctypes.c_void_p()
    while libc.timer_create(0, None, ctypes.byref(timer)) == 0:
        pass
    return hold(pipe, place, innocents)
"#,
    innocent: r#"
def f(place, _):
    come(place)
    timer = ctypes.c_void_p()
    checked(libc.timer_create(0, None, ctypes.byref(timer)))
    return "had some"
"#,
    ..PAIR
};

pub(super) const MAX_WATCHES: &str = "/proc/sys/fs/epoll/max_user_watches";
pub(super) const FEWER_WATCHES: &str = "100000";

pub(super) const EPOLL_WATCHES: Pair = Pair {
    name: "epoll watches",
    attacker: r#"
def f(place, innocents):
    pipe = pipe_of(place)
    watched = [os.eventfd(0) for _ in range(500)]
    held = []
    def watch():
        held.append(select.epoll())
        for one in watched:
            held[-1].register(one)
    fill(watch, 400)
    return hold(pipe, place, innocents)
"#,
    innocent: r#"
def f(place, _):
    come(place)
    select.epoll().register(os.eventfd(0))
    return "had some"
"#,
    ..PAIR
};

const FEW_PORTS: &str = "echo 40000 40099 > /proc/sys/net/ipv4/ip_local_port_range; ";

pub(super) const TCP_PORTS: Pair = Pair {
    name: "TCP ports",
    attacker: r#"
def f(place, innocents):
    pipe, held = pipe_of(place), []
    def bind():
        held.append(socket.socket())
        held[-1].bind(("", 0))
    fill(bind)
    return hold(pipe, place, innocents)
"#,
    innocent: r#"
def f(place, _):
    come(place)
    socket.socket().bind(("127.0.0.1", 0))
    return "had some"
"#,
    host: FEW_PORTS,
    ..PAIR
};

pub(super) const UDP_PORTS: Pair = Pair {
    name: "UDP ports",
    attacker: r#"
def f(place, innocents):
    pipe, held = pipe_of(place), []
    def bind():
        held.append(socket.socket(type=socket.SOCK_DGRAM))
        held[-1].bind(("", 0))
    fill(bind)
    return hold(pipe, place, innocents)
"#,
    innocent: r#"
def f(place, _):
    come(place)
    socket.socket(type=socket.SOCK_DGRAM).bind(("127.0.0.1", 0))
    return "had some"
"#,
    host: FEW_PORTS,
    ..PAIR
};

const SMALL_DISK: &str =
    "mount -t tmpfs -o size=16m,nr_inodes=2000,mode=700,uid=$(stat -c %u spill) none spill; ";

const NEEDS_DISK: &str = r#"
def f(place, _):
    come(place)
    for n in range(10):
        with open(f"own-{n}", "wb") as own:
            own.write(b"x" * (1 << 18))
    return "had some"
"#;

pub(super) const BLOCKS: Pair = Pair {
    name: "disk space",
    attacker: r#"
def f(place, innocents):
    pipe = pipe_of(place)
    with open("all", "wb", buffering=0) as every:
        fill(lambda: every.write(b"x" * 4096))
        return hold(pipe, place, innocents)
"#,
    innocent: NEEDS_DISK,
    host: SMALL_DISK,
    ..PAIR
};

pub(super) const INODES: Pair = Pair {
    name: "disk space or inodes",
    attacker: r#"
def f(place, innocents):
    pipe, names = pipe_of(place), iter(range(100_000))
    fill(lambda: os.mkdir(f"one-{next(names)}"))
    return hold(pipe, place, innocents)
"#,
    innocent: NEEDS_DISK,
    host: SMALL_DISK,
    ..PAIR
};

pub(super) const SHARED_MEMORY: Pair = Pair {
    shares_quotas: true,
    name: "/dev/shm",
    attacker: r#"
def f(place, innocents):
    pipe = pipe_of(place)
    with open("/dev/shm/all", "wb", buffering=0) as every:
        os.unlink("/dev/shm/all")
        fill(lambda: every.write(b"x" * 4096))
        return hold(pipe, place, innocents)
"#,
    innocent: r#"
def f(place, _):
    come(place)
    with open(f"/dev/shm/own-{os.getpid()}-{time.monotonic_ns()}", "wb", buffering=0) as own:
        os.unlink(own.name)
        if own.write(b"x" * (1 << 20)) < 1 << 20:
            raise OSError("refused")
    return "had some"
"#,
    host: "mount -t tmpfs -o size=8m,mode=1777 none /dev/shm; ",
    ..PAIR
};

const LOCK: Pair = Pair {
    name: "a locked file",
    first_verdict: "timeout",
    innocent_timeout_s: 2.0,
    ..PAIR
};

pub(super) const FLOCK: Pair = Pair {
    attacker: r#"
def f(place, innocents):
    pipe = pipe_of(place)
    with open(place + "/locked", "w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        return hold(pipe, place, innocents)
"#,
    innocent: r#"
def f(place, _):
    come(place)
    with open(place + "/locked", "w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
    return "had some"
"#,
    ..LOCK
};

pub(super) const RECORD_LOCK: Pair = Pair {
    attacker: r#"
def f(place, innocents):
    pipe = pipe_of(place)
    with open(place + "/locked", "w") as locked:
        fcntl.lockf(locked, fcntl.LOCK_EX)
        return hold(pipe, place, innocents)
"#,
    innocent: r#"
def f(place, _):
    come(place)
    with open(place + "/locked", "w") as locked:
        fcntl.lockf(locked, fcntl.LOCK_EX)
    return "had some"
"#,
    ..LOCK
};

/// As the kernel names no process for these.
pub(super) const OPEN_FILE_LOCK: Pair = Pair {
    attacker: r#"
def f(place, innocents):
    pipe = pipe_of(place)
    with open(place + "/locked", "w") as locked:
        fcntl.fcntl(locked, 37, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))  # F_OFD_SETLK
        return hold(pipe, place, innocents)
"#,
    innocent: r#"
def f(place, _):
    come(place)
    with open(place + "/locked", "w") as locked:
        fcntl.fcntl(locked, 38, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))  # F_OFD_SETLKW
    return "had some"
"#,
    ..LOCK
};
