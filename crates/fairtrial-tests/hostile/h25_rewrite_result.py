# Keeps the file that its result goes through, and rewrites and cuts it while the engine reads.
import mmap
import threading

SIZE = 4 << 20


def shim():
    frame = sys._getframe()
    while frame.f_globals.get("__name__") != "<fairtrial>":
        frame = frame.f_back
    return frame.f_globals


def meddle(descriptor, mapping):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        for act in (
            lambda: mapping.__setitem__(slice(0, 100), b"X" * 100),
            lambda: os.pwrite(descriptor, b"Y" * 70000, 0),
            lambda: os.ftruncate(descriptor, 0),
            lambda: os.ftruncate(descriptor, SIZE),
        ):
            try:
                act()
            except (OSError, ValueError, TypeError):
                pass


def attack(places, what):
    names = shim()
    close = names["close"]

    def keep(descriptor):
        if os.fstat(descriptor).st_size >= SIZE:
            names["close"] = close
            try:
                mapping = mmap.mmap(descriptor, SIZE)
            except (OSError, ValueError):
                mapping = None
            kept = os.dup(descriptor)
            for _ in range(3):
                threading.Thread(target=meddle, args=(kept, mapping)).start()
        close(descriptor)

    names["close"] = keep
    return b"a" * SIZE
