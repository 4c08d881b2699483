"""Leaves a word wherever a file, a segment, a queue, a key or an attribute may stay, and looks for one left before."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
found = []


def attempt(name, look, leave):
    for what in (look, leave):
        try:
            if what() and what is look:
                found.append(name)
        except (OSError, AttributeError):  # refused, or an old C library has it elsewhere
            pass


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return True


for place in ("/dev/shm", "/tmp", "/var/tmp", "/run", "/run/lock", "/dev/mqueue", os.environ["HOME"], "."):
    path = place + "/word-that-was-left"
    attempt(path, lambda path=path: os.path.exists(path), lambda path=path: open(path, "w").close())
KEY = 0x57_4F_52_44
attempt("segment", lambda: checked(libc.shmget(KEY, 4096, 0o600)), lambda: checked(libc.shmget(KEY, 4096, 0o1600)))
attempt("semaphore", lambda: checked(libc.semget(KEY, 1, 0o600)), lambda: checked(libc.semget(KEY, 1, 0o1600)))
attempt(
    "queue",
    lambda: checked(libc.mq_open(b"/word", os.O_RDONLY)),
    lambda: checked(libc.mq_open(b"/word", os.O_RDWR | os.O_CREAT, 0o600, None)),
)
beside = os.environ["BESIDE"]
attempt("attribute", lambda: os.getxattr(beside, "user.word"), lambda: os.setxattr(beside, "user.word", b"x"))
attempt("time", lambda: os.stat(beside).st_mtime == 77, lambda: os.utime(beside, (77, 77)))
SEARCH, ADD_KEY, KEYCTL = 10, 248, 250
for name, ring in (("user keyring", -4), ("session keyring", -3)):
    attempt(
        name,
        lambda ring=ring: checked(libc.syscall(KEYCTL, SEARCH, ring, b"user", b"word", 0)),
        lambda ring=ring: checked(libc.syscall(ADD_KEY, b"user", b"word", b"x", 1, ring)),
    )
print("found", ", ".join(found) or "nothing")
