# Asks for ten times the memory it may have, by one way of many, and touches all of it.
import mmap
import subprocess

PIECE = 1 << 20


def fill(mapping, size):
    for place in range(0, size, PIECE):
        mapping[place : place + PIECE] = b"x" * PIECE


def one_process(size):
    kept = []
    for _ in range(size // PIECE):
        kept.append(bytearray(os.urandom(16) * (PIECE // 16)))
    return kept


def children(size):
    for _ in range(50):
        if os.fork() == 0:
            kept = one_process(size // 50)
            linger()
            return kept
    time.sleep(TOO_LONG)


def shared(size):
    mapping = mmap.mmap(-1, size, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    fill(mapping, size)
    return mapping


def nameless_file(directory):
    """Of a file that is not left behind when this is stopped."""

    def act(size):
        path = os.path.join(directory, "sin-%d" % os.getpid())
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.unlink(path)
        for _ in range(size // PIECE):
            os.write(file, b"x" * PIECE)
        return file

    return act


def memory_file(size):
    file = os.memfd_create("sin")
    for _ in range(size // PIECE):
        os.write(file, b"x" * PIECE)
    return file


def scratch(size):
    return nameless_file(os.environ["TMPDIR"])(size)


def populate(size):
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000  # MAP_POPULATE
    return mmap.mmap(-1, size, flags)


def page_cache(size):
    """Reads more of the system's files than it may have memory: the kernel's to give back."""
    left = size // 3
    for directory, _, names in os.walk("/usr/lib"):
        for name in names:
            path = os.path.join(directory, name)
            if left <= 0:
                return "read enough"
            if os.path.isfile(path) and not os.path.islink(path):
                left -= read_anew(path)
    return "read all there is"


def read_anew(path):
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return 0
    read = 0
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        piece = True
        while piece:
            piece = os.read(file, PIECE)
            read += len(piece)
    except OSError:
        pass
    os.close(file)
    return read


WAYS = {
    "one process": one_process,
    "50 children": children,
    "shared mapping": shared,
    "/dev/shm": nameless_file("/dev/shm"),
    "memory file": memory_file,
    "scratch": scratch,
    "populate": populate,
    "page cache": page_cache,
}


def attack(places, what):
    kept = WAYS[what](places["ten_times_memory"])
    if isinstance(kept, str):
        return kept
    time.sleep(TOO_LONG)  # a limit that is looked at now and then gets its look
