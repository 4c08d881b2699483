# Locks all its memory in place; or pushes ten times what it may have out to swap.
import mmap


def lock():
    checked(libc.mlockall(7))  # MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT
    libc.munlockall()


def swap_out(size):
    kept = []
    for _ in range(size >> 20):
        piece = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        piece[:] = os.urandom(1 << 10) * (1 << 10)
        try:
            piece.madvise(21)  # MADV_PAGEOUT
        except OSError:
            pass
        kept.append(piece)
    time.sleep(TOO_LONG)


def attack(places, what):
    if what == "swap":
        return swap_out(places["ten_times_memory"])
    return [attempt("mlockall", lock)]
