"""Keeps a descriptor and a mapping of the file that its result went through, to change it after the reply."""
import mmap
import os
import sys
import threading


def shim():
    frame = sys._getframe()
    while frame.f_globals.get("__name__") != "<fairtrial>":
        frame = frame.f_back
    return frame.f_globals


def large_result(size, at_once):
    """A result of `size` bytes; what is kept of its file goes to `sys.kept`."""
    names = shim()
    close = names["close"]

    def keep(descriptor):
        if os.fstat(descriptor).st_size >= size:
            names["close"] = close
            try:
                mapping = mmap.mmap(descriptor, size)
            except (OSError, ValueError):
                mapping = None
            sys.kept = os.dup(descriptor), mapping
            if at_once:
                threading.Thread(target=meddle, args=(200,), daemon=True).start()
        close(descriptor)

    names["close"] = keep
    return b"a" * size


def meddle(times=1):
    """Rewrites and cuts the file; tells which of these the kernel allowed."""
    descriptor, mapping = sys.kept
    done = set()
    for _ in range(times):
        try:
            if mapping is not None:
                mapping[:100] = b"X" * 100
                mapping[-100:] = b"X" * 100
                done.add("mapping")
        except (OSError, ValueError):
            pass
        for name, act in (
            ("write", lambda: os.pwrite(descriptor, b"Y" * 70000, 0)),
            ("cut", lambda: os.ftruncate(descriptor, 0)),
            ("grow", lambda: os.ftruncate(descriptor, 1 << 20)),
        ):
            try:
                act()
                done.add(name)
            except OSError:
                pass
    return sorted(done)
