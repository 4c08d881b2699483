"""One case against one peer, in a process of its own: python peer_host.py ppe|loky CASE DIRECTORY

Writes what was seen, in a few words, to DIRECTORY/cell.
"""

import concurrent.futures
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import uuid

import peer_programs as programs
from peer_processes import MARK, alive, marked, wait_for

BLAS = [name + "_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA")]
BLAS.append("VECLIB_MAXIMUM_THREADS")
SECRETS = ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "PEERS_RANDOM_7F3A"]


class Absent(Exception):
    """The peer has no such feature."""


def pool(kind, workers, **options):
    if kind == "ppe":
        return concurrent.futures.ProcessPoolExecutor(workers, **options)
    import loky

    return loky.get_reusable_executor(max_workers=workers, timeout=60, **options)


def settle(futures, seconds):
    """How many are done well, failed, and not done after so many seconds."""
    done, waiting = concurrent.futures.wait(futures, timeout=seconds)
    failed = [future for future in done if future.cancelled() or future.exception()]
    return len(done) - len(failed), len(failed), len(waiting)


def count(number, noun):
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def broken(executor):
    try:
        return executor.submit(programs.one).result(timeout=3) != 1
    except Exception:
        return True


def files(directory):
    return [int(name) for name in os.listdir(directory) if name.isdigit()]


def host_killed(kind, directory):
    mark = uuid.uuid4().hex
    victim = subprocess.Popen(
        [sys.executable, __file__, kind, "victim", directory], env=dict(os.environ, FAIRTRIAL_PEERS_VICTIM=mark)
    )
    started = wait_for(lambda: len(files(directory)) == 4, 6)
    victim.kill()
    victim.wait()
    wait_for(lambda: not marked(mark), 1)
    left = len(marked(mark))
    return "processes left 1 s later: %d%s" % (left, "" if started else " (slow start)")


def victim(kind, directory):
    executor = pool(kind, 4)
    for _ in range(4):
        executor.submit(programs.sign_and_nap, directory, 30)
    time.sleep(30)


def shutdown_after(kind, program):
    executor = pool(kind, 1)
    executor.submit(program).result()
    ending = threading.Thread(target=executor.shutdown, daemon=True)
    ending.start()
    ending.join(3)
    return "shutdown hung (over 3 s)" if ending.is_alive() else "no delay"


def slow_atexit(kind, directory):
    return shutdown_after(kind, programs.slow_atexit)


def slow_thread(kind, directory):
    return shutdown_after(kind, programs.slow_thread)


def on_demand(kind, directory):
    executor = pool(kind, 8)
    for _ in range(8):
        executor.submit(programs.process).result()
    return count(len(executor._processes), "worker") + " for 8 calls in turn"


def backlog(kind, directory):
    if "max_tasks_per_child" not in inspect.signature(pool(kind, 1).__class__).parameters:
        raise Absent("no such option")
    executor = pool(kind, 1, max_tasks_per_child=2)
    well, failed, waiting = settle([executor.submit(programs.one) for _ in range(20)], 6)
    return "all 20 done" if well == 20 else "deadlock: %d of 20 done after 6 s" % well


def crash(kind, directory):
    executor = pool(kind, 4)
    [future.result() for future in [executor.submit(programs.nap, 0.1) for _ in range(4)]]
    siblings = [executor.submit(programs.nap, 1) for _ in range(3)]
    executor.submit(programs.abort_after, 0.3)
    _, failed, _ = settle(siblings, 4)
    return "%s: %s failed" % ("pool broke" if broken(executor) else "pool works", count(failed, "sibling"))


def worker_killed(kind, directory):
    executor = pool(kind, 2)
    futures = [executor.submit(programs.sign_and_nap, directory, 0.2) for _ in range(10)]
    wait_for(lambda: files(directory), 3)
    os.kill(files(directory)[0], signal.SIGKILL)
    _, failed, waiting = settle(futures, 5)
    return "%d of 10 failed%s" % (failed, ", %d hung" % waiting if waiting else "")


def state(kind, directory):
    executor = pool(kind, 1)
    executor.submit(programs.pollute).result()
    return "seen: " + (", ".join(executor.submit(programs.polluted).result()) or "nothing")


def environment(kind, directory):
    return "in " + (" and ".join(pool(kind, 1).submit(programs.secrets, SECRETS).result()) or "neither")


def threads(kind, directory):
    found = pool(kind, 2).submit(programs.variables, BLAS).result()
    return "%d of %d set" % (len(found), len(BLAS))


def queue_time(kind, directory):
    executor = pool(kind, 1)
    executor.submit(programs.one).result()
    futures = [executor.submit(programs.nap, 0.2) for _ in range(8)]
    late = []

    def wait(future):
        try:
            future.result(timeout=0.7)
        except concurrent.futures.TimeoutError:
            late.append(future)

    waiters = [threading.Thread(target=wait, args=(future,)) for future in futures]
    [waiter.start() for waiter in waiters]
    [waiter.join() for waiter in waiters]
    return "%d of 8 timed out" % len(late)


def hangs_and_siblings(kind, directory):
    executor = pool(kind, 4)
    [future.result() for future in [executor.submit(programs.nap, 0.1) for _ in range(4)]]
    hanging = [executor.submit(programs.sign_and_nap, directory, 30) for _ in range(2)]
    siblings = [executor.submit(programs.nap, 1.5) for _ in range(2)]
    try:
        hanging[0].result(timeout=0.5)
    except concurrent.futures.TimeoutError:
        pass
    return executor, hanging, siblings


def timeout(kind, directory):
    _, hanging, _ = hangs_and_siblings(kind, directory)
    time.sleep(0.5)
    left = min(sum(map(alive, files(directory))), sum(not future.done() for future in hanging))
    return "kept running (%d of 2)" % left if left else "killed"


def timeout_siblings(kind, directory):
    executor, _, siblings = hangs_and_siblings(kind, directory)
    if kind == "loky":
        how = "shutdown(kill_workers=True)"
        executor.shutdown(wait=False, kill_workers=True)
    elif hasattr(executor, "kill_workers"):
        how = "kill_workers()"
        executor.kill_workers()
    else:
        raise Absent("no public way to kill it")
    well, _, _ = settle(siblings, 3)
    return "%s: %s failed" % (how, count(2 - well, "sibling"))


def escaped(kind, directory):
    executor = pool(kind, 1)
    pid = executor.submit(programs.escape).result()
    executor.shutdown(wait=True)
    time.sleep(0.2)
    return "leaked: outlives call and pool" if alive(pid) else "dead"


def cancel(kind, directory):
    executor = pool(kind, 1)
    future = executor.submit(programs.sign_and_nap, directory, 30)
    wait_for(lambda: files(directory), 3)
    accepted = future.cancel()
    time.sleep(0.5)
    running = alive(files(directory)[0]) and not future.done()
    return "cancel() is %s, %s" % (accepted, "kept running" if running else "stopped")


def stack(kind, directory):
    try:
        pool(kind, 1).submit(programs.hang).result(timeout=0.7)
    except concurrent.futures.TimeoutError as error:
        return "stack given" if "wait_for_rain" in repr(error) else "no stack: `%s()`" % type(error).__name__
    return "no timeout"


def bad_pickle(kind, directory):
    executor = pool(kind, 2)
    [future.result() for future in [executor.submit(programs.nap, 0.1) for _ in range(2)]]
    siblings = [executor.submit(programs.nap, 1)]
    executor.submit(programs.unreadable)
    _, failed, waiting = settle(siblings, 4)
    return "%s: %s failed" % ("pool broke" if broken(executor) else "pool works", count(failed + waiting, "sibling"))


def pickle_runs(kind, directory):
    path = os.path.join(directory, "made-by-unpickling")
    pool(kind, 1).submit(programs.opens, path).result()
    return "ran in the host" if os.path.exists(path) else "not run"


def heuristics(kind, directory):
    raise Absent("no verdicts")


def long_message(kind, directory):
    error = pool(kind, 1).submit(programs.long_message).exception()
    return "whole" if len(str(error)) >= 100000 else "cut to %d" % len(str(error))


def output(kind, directory):
    error = pool(kind, 1).submit(programs.talk_and_abort).exception(timeout=5)
    time.sleep(0.3)
    said = ("print", "write", "a child")
    if all(word in str(error) for word in said):
        return "captured"
    with open(os.path.join(directory, "output"), errors="replace") as file:
        text = file.read()
    lost = [word for word in said if "said by " + word not in text]
    return "not captured: on the host's stdout" + ("; lost: " + ", ".join(lost) if lost else "")


def peak(kind, directory):
    executor = pool(kind, 1)
    executor.submit(programs.peak_after, 200 << 20).result()
    tiny = executor.submit(programs.peak_after, 1).result() >> 20
    return "none; the worker's own peak is %s" % ("of its lifetime" if tiny >= 200 else "%d MiB" % tiny)


def main():
    kind, case, directory = sys.argv[1:]
    try:
        cell = globals()[case](kind, directory)
    except Absent as absent:
        cell = str(absent)
    except Exception as error:
        cell = "error: %s" % type(error).__name__
    partial = os.path.join(directory, "cell.part")
    with open(partial, "w") as file:
        file.write(cell or "")
    os.rename(partial, os.path.join(directory, "cell"))
    os._exit(0)  # not to wait for workers that hang


if __name__ == "__main__":
    assert MARK in os.environ, "run by test_peers.py"
    main()
