"""What workers run for the tests: each function is named for what it does, each class for its sin."""

import os
import pickle
import signal
import sys
import threading
import time
import weakref


def same(value):
    return value


def nothing(*args, **kwargs):
    return None


def keywords(*args, **kwargs):
    return args, kwargs


def add(a, b):
    return a + b


def pid(*args):
    return os.getpid()


def pass_gate(path, value=None):
    """Says that it has begun, and waits to be let through."""
    mine = f"{path}.{os.getpid()}"
    with open(mine, "w") as file:
        file.write(str(os.getpid()))
    os.rename(mine, path + ".begun")
    while not os.path.exists(path + ".open"):
        time.sleep(0.001)
    return value


def sleep(seconds=3600, *args):
    time.sleep(seconds)
    return seconds


def spin(*args):
    while True:
        pass


def touch(path):
    with open(path, "w"):
        pass


def append(path, text):
    with open(path, "a") as file:
        file.write(text)


def crash(*args):
    os.kill(os.getpid(), signal.SIGSEGV)


def read_nowhere(*args):
    """A true segmentation fault, in foreign code."""
    import ctypes

    ctypes.string_at(0)


def exhaust_memory(*args):
    """Takes memory until it is stopped, and takes no refusal for an answer."""
    kept = []
    while True:
        try:
            kept.append(bytearray(b"x") * (16 << 20))
        except MemoryError:
            pass


def return_lock(*args):
    """A result that does not pickle."""
    return threading.Lock()


def ignore_sigterm_and_hang(*args):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def exit_process(code=0, *args):
    os._exit(code)


def exit_python(*args):
    sys.exit(3)


def fail(*args):
    raise ValueError("on purpose", *args)


def raise_it(error):
    raise error


def make(cls, *args):
    return cls(*args)


def raise_made(cls, *args):
    raise cls(*args)


def write(text, descriptor=1):
    os.write(descriptor, text.encode())


def say(text, error=False):
    print(text, file=sys.stderr if error else sys.stdout)


def finalized(path, thing):
    """Touches `path` when `thing` is released."""
    weakref.finalize(thing, touch, path)


def make_finalized(path):
    """A result that touches `path` when the worker releases it."""
    thing = Plain()
    weakref.finalize(thing, touch, path)
    return thing


def square_nested(numbers):
    import fairtrial as ft

    with ft.Executor(2) as executor:
        return list(executor.map(square, numbers))


def square(x):
    return x * x


def use_multiprocessing(numbers):
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(square, numbers)


def process_name():
    import multiprocessing

    return multiprocessing.current_process().name


def surroundings():
    return {"path": list(sys.path), "argv": list(sys.argv), "cwd": os.getcwd()}


def read_stdin():
    return sys.stdin.read(), os.read(0, 10)


def getenv(*names):
    return [os.environ.get(name) for name in names]


def is_faulthandler_on():
    import faulthandler

    return faulthandler.is_enabled()


class Plain:
    """A value with a weak reference and a class of its own."""

    def __eq__(self, other):
        return isinstance(other, Plain)

    __hash__ = None


class Node:
    def __init__(self):
        self.itself = self


class Needy(Exception):
    """Does not unpickle: its arguments are not those it was made with."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class Unpicklable(Exception):
    """Does not pickle."""

    def __init__(self, message):
        super().__init__(message)
        self.lock = threading.Lock()


class OwnError(Exception):
    """An ordinary exception of the user's."""


# -- trouble on the way


class Unshowable(Exception):
    def __str__(self):
        raise ValueError("not to be shown")


def _act(how):
    if how == "unshowable":
        raise Unshowable
    if how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "exit":
        sys.exit(7)
    elif how == "interrupt":
        raise KeyboardInterrupt
    raise ValueError("trouble on the way")


class TroubleWhenPickled:
    """Crashes, exits or raises when it is pickled."""

    def __init__(self, how):
        self.how = how

    def __reduce__(self):
        _act(self.how)


class TroubleWhenUnpickled:
    """Pickles well; crashes, exits or raises when it is unpickled."""

    def __init__(self, how):
        self.how = how

    def __reduce__(self):
        return _act, (self.how,)


def run_into(how):
    _act(how)


def return_trouble(when, how, size=0):
    trouble = TroubleWhenPickled(how) if when == "pickled" else TroubleWhenUnpickled(how)
    return (pickle.PickleBuffer(bytearray(size)), trouble) if size else trouble


def die_while_writing(size):
    """Returns what takes long to write, and is killed meanwhile."""
    threading.Thread(target=_kill_when_writing, daemon=True).start()
    return bytes(size)


def _kill_when_writing():
    while not any("memfd:" in _link(name) for name in os.listdir("/proc/self/fd")):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def _link(name):
    try:
        return os.readlink("/proc/self/fd/" + name)
    except OSError:
        return ""


def last_of(array):
    return len(array), int(array[-1])


def zeros_ending_in(size, last):
    import numpy

    array = numpy.zeros(size, numpy.uint8)
    array[-1] = last
    return array


def raise_or_pass(path, fails):
    pass_gate(path)
    if fails:
        raise ValueError


def exit_if(code):
    if code:
        os._exit(code)
    return 0


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return ""


_global = None


def set_global(value):
    global _global
    _global = value


def get_global():
    return _global


def pass_gate_and_fail(path):
    pass_gate(path)
    raise ValueError("the initializer fails")


def executable():
    return sys.executable


def say_and_pass_gate(text, path):
    print(text)
    pass_gate(path)


def firsts(*sequences):
    return [bytes(sequence)[0] if isinstance(sequence, pickle.PickleBuffer) else sequence[0] for sequence in sequences]


def notice_interrupt(path):
    """Waits at a gate, and leaves a note if it is interrupted."""
    signal.signal(signal.SIGINT, lambda *_: touch(path + ".interrupt"))
    return pass_gate(path)


def slowly(path):
    time.sleep(0.3)
    append(path, "slowly")


def ignore_signals_and_pass_gate(path):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pass_gate(path)


def nested_squares(n, levels):
    import joblib

    if not levels:
        return square(n)
    return joblib.Parallel(n_jobs=2)(joblib.delayed(nested_squares)(n + k, levels - 1) for k in range(2))


def nested_squares_by_name(n, levels, how):
    """As `nested_squares`, where each level names the backend itself."""
    import joblib

    if not levels:
        return square(n)
    tasks = [joblib.delayed(nested_squares_by_name)(n + k, levels - 1, how) for k in range(2)]
    if how == "Parallel":
        return joblib.Parallel(n_jobs=2, backend="fairtrial")(tasks)
    with joblib.parallel_config(backend="fairtrial", n_jobs=2):
        return joblib.Parallel()(tasks)


def nested_pids(count):
    import joblib

    return os.getpid(), joblib.Parallel(n_jobs=2, backend="fairtrial")(joblib.delayed(pid)() for _ in range(count))


def nested_expected(n, levels):
    return [nested_expected(n + k, levels - 1) for k in range(2)] if levels else square(n)


def crash_when(path):
    while not os.path.exists(path):
        time.sleep(0.001)
    crash()
