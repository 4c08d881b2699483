# Reserves a tebibyte of addresses and touches none of them.
import mmap


def attack(places, what):
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    return len(mmap.mmap(-1, 1 << 40, flags))
