# Works a known while with known memory, then tells false times and sizes in every way it can.
import threading

CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
true_clock, true_cpu = time.monotonic, time.process_time


def forget_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def attack(places, what):
    libc.prctl(15, b"x) R 1 1 1) S (y", 0, 0, 0)
    begin, begin_cpu = true_clock(), true_cpu()
    ballast = bytearray(os.urandom(16) * (80_000_000 // 16))
    while true_clock() < begin + 0.4 or true_cpu() < begin_cpu + 0.2:
        pass
    size = len(ballast)
    del ballast
    for name in CLOCKS:
        setattr(time, name, lambda: 0)
        setattr(time, name + "_ns", lambda: 0)
    os.times = os.getpid = threading.get_ident = lambda: 0
    told = [attempt("clear_refs", forget_peak)] if what == "peak" else None
    return {"size": size, "said": time.monotonic(), "told": told}
