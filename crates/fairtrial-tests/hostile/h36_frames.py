# Writes to the worker's own socket, in the shim's name, answers that are none.
import stat
import struct

VALUE, FILED, NEED = 21, 23, 20
NULL, ONE = b"N", b"i" + struct.pack("<q", 1)


def is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


def wire():
    return next(fd for fd in range(200, 300) if is_socket(fd))


def generation():
    frame = sys._getframe()
    while "generation" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["generation"]


def framed(payload, length=None, kind=VALUE):
    return struct.pack("<2sBBIQ", b"FT", 1, kind, generation(), len(payload) if length is None else length) + payload


def listed(count):
    return b"l" + struct.pack("<Q", count)


def array(*shape):
    """Well formed, but for its data, which is far too short."""
    length = 8
    for extent in shape:
        length *= extent
    return b"ACu\x03<f8" + struct.pack("<B%dQQ" % len(shape), len(shape), *shape, length % 2**64) + b"\x00" * 128


def deep():
    return listed(1) * 5000 + NULL


FRAMES = {
    "4 GiB": lambda: framed(ONE, length=4 << 30),
    "negative": lambda: framed(ONE, length=2**64 - 1),
    "deep": lambda: framed(deep()),
    "bomb": lambda: framed(listed(2**40) + NULL),
    "nested bomb": lambda: framed(listed(2**20) * 2000 + NULL),
    "shape": lambda: framed(array(2**30, 2**29)),
    "shape that wraps": lambda: framed(array(2**32, 2**32, 2)),
    "file": lambda: framed(struct.pack("<BQ", VALUE, 2**62), kind=FILED),
    "huge file": lambda: framed(struct.pack("<Q", 2**63), kind=NEED),
    "junk": lambda: b"\x80\x05cos\nsystem\n" * 10,
    "two": lambda: framed(NULL) + framed(ONE),
}


def attack(places, what):
    if what == "half":
        os.write(wire(), framed(ONE)[:-3])
        os._exit(0)
    if what == "late":
        time.sleep(places["timeout_s"] * 3)
        os.write(wire(), framed(ONE))
    else:
        os.write(wire(), FRAMES[what]())
    time.sleep(TOO_LONG)
