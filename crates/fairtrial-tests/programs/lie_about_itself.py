"""Tells false times, has a name that looks like more fields of /proc/PID/stat, and leaves a child with one."""
import ctypes
import os
import time

true_clock, true_cpu, true_sleep = time.monotonic, time.process_time, time.sleep
NAME = b"x) R 1 1 1) S (y"  # 15 characters at most are kept


def f():
    ctypes.CDLL(None).prctl(15, NAME, 0, 0, 0)
    child = os.fork()
    if child == 0:
        true_sleep(20)
        os._exit(0)
    begin, begin_cpu = true_clock(), true_cpu()
    ballast = b"x" * 60_000_000
    while true_clock() < begin + 0.3 or true_cpu() < begin_cpu + 0.15:
        pass
    for name in ("time", "monotonic", "perf_counter", "process_time", "time_ns", "monotonic_ns"):
        setattr(time, name, lambda: 0)
    return {"time": time.monotonic(), "size": len(ballast)}
