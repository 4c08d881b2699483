"""A contender of `make bench`: a pool of two workers, asked in lines on stdin, answering in lines of JSON.

    python bench/pools.py NAME

`warm N`: seconds of each of N calls, one after the other. `throughput N`, `map N`: seconds for N calls in all.
`large MIB`: seconds until an array made in a worker can be summed here. `cold`: seconds from making a pool to its first
answer. `pending N`: bytes that this process grows for each of N calls that wait.
"""

import concurrent.futures
import json
import multiprocessing
import os
import sys
import tempfile
import time

import numpy

WORKERS = 2


def nothing():
    pass


def double(x):
    return 2 * x


def make_array(mebibytes):
    return numpy.ones(mebibytes << 17)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.002)


class Futures:
    """Pools with the interface of `concurrent.futures`."""

    def __init__(self, make):
        self.make = make
        self.pool = None

    def open(self):
        self.pool = self.make()

    def close(self):
        self.pool.shutdown()

    def submit(self, function, *args):
        return self.pool.submit(function, *args)

    def result(self, handle):
        return handle.result()

    def map(self, function, items):
        return list(self.pool.map(function, items))


class Pebble(Futures):
    def close(self):
        self.pool.close()
        self.pool.join()

    def submit(self, function, *args):
        return self.pool.schedule(function, args=args)

    def map(self, function, items):
        return list(self.pool.map(function, items).result())


class Pool(Futures):
    def close(self):
        self.pool.close()
        self.pool.join()

    def submit(self, function, *args):
        return self.pool.apply_async(function, args)

    def result(self, handle):
        return handle.get()

    def map(self, function, items):
        return self.pool.map(function, items, chunksize=1)


class Ray(Futures):
    def __init__(self):
        import ray

        self.ray = ray
        self.functions = {}

    def open(self):
        self.ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")

    def close(self):
        self.ray.shutdown()
        self.functions.clear()

    def submit(self, function, *args):
        if function not in self.functions:
            self.functions[function] = self.ray.remote(function)
        return self.functions[function].remote(*args)

    def result(self, handle):
        return self.ray.get(handle)

    def map(self, function, items):
        return self.ray.get([self.submit(function, item) for item in items])


class OneByOne(Futures):
    """A backend, whose `execute` waits: for `warm` only."""

    def __init__(self, name):
        import fairtrial

        self.no_op = fairtrial.Call(source="def f(): pass", function="f", isolation="reuse", sandbox="none")
        if name == "redis-backend":
            super().__init__(lambda: fairtrial.RedisBackend(os.environ["FAIRTRIAL_BENCH_REDIS"]))
        else:
            super().__init__(lambda: fairtrial.LocalBackend(WORKERS))

    def submit(self, function, *args):
        return self.pool.execute(self.no_op)

    def result(self, handle):
        return handle.value


def contender(name):
    if name == "fairtrial":
        import fairtrial

        return Futures(lambda: fairtrial.Executor(WORKERS))
    if name in ("local-backend", "redis-backend"):
        return OneByOne(name)
    if name in ("ppe-fork", "ppe-spawn"):
        context = multiprocessing.get_context(name[4:])
        return Futures(lambda: concurrent.futures.ProcessPoolExecutor(WORKERS, mp_context=context))
    if name == "loky":
        import loky

        return Futures(lambda: loky.ProcessPoolExecutor(WORKERS))
    if name == "pebble":
        import pebble

        return Pebble(lambda: pebble.ProcessPool(WORKERS))
    if name == "mp-pool":
        return Pool(lambda: multiprocessing.Pool(WORKERS))
    if name == "ray":
        return Ray()
    sys.exit("bench: no contender `%s`" % name)


class Bench:
    def __init__(self, pool):
        self.pool = pool

    def answer(self, line):
        name, *numbers = line.split()
        return getattr(self, name)(*map(int, numbers))

    def call(self, function, *args):
        return self.pool.result(self.pool.submit(function, *args))

    def warm(self, calls):
        samples = []
        for _ in range(calls):
            start = time.perf_counter()
            self.call(nothing)
            samples.append(time.perf_counter() - start)
        return samples

    def throughput(self, calls):
        start = time.perf_counter()
        handles = [self.pool.submit(nothing) for _ in range(calls)]
        for handle in handles:
            self.pool.result(handle)
        return [time.perf_counter() - start]

    def map(self, calls):
        start = time.perf_counter()
        self.pool.map(double, range(calls))
        return [time.perf_counter() - start]

    def large(self, mebibytes):
        for handle in [self.pool.submit(make_array, 1) for _ in range(8 * WORKERS)]:
            self.pool.result(handle)  # whoever has to import numpy for it has done so
        start = time.perf_counter()
        array = self.call(make_array, mebibytes)
        array.sum()
        return [time.perf_counter() - start]

    def cold(self):
        self.pool.close()
        start = time.perf_counter()
        self.pool.open()
        self.call(nothing)
        taken = time.perf_counter() - start
        self.warm_up()
        return [taken]

    def pending(self, calls):
        with tempfile.TemporaryDirectory() as directory:
            gate = os.path.join(directory, "gate")
            held = [self.pool.submit(wait_for, gate) for _ in range(WORKERS)]
            before = resident()
            handles = [self.pool.submit(nothing) for _ in range(calls)]
            grown = resident() - before
            open(gate, "w").close()
            for handle in held + handles:
                self.pool.result(handle)
        return [grown / calls]

    def warm_up(self):
        for _ in range(5):
            for handle in [self.pool.submit(nothing) for _ in range(50)]:
                self.pool.result(handle)


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main():
    answers = os.dup(1)
    os.dup2(2, 1)  # what a pool prints is no answer
    pool = contender(sys.argv[1])
    bench = Bench(pool)
    pool.open()
    bench.warm_up()
    for line in sys.stdin:
        os.write(answers, (json.dumps(bench.answer(line)) + "\n").encode())
    pool.close()


if __name__ == "__main__":
    main()
