"""Fairtrial's plug-in for pytest: what became of each case, as JSON lines, and the fixture `record_value`.

Loaded by environment alone: `PYTEST_PLUGINS` names it, `PYTHONPATH` has its directory, `FAIRTRIAL_CASES` names the file
that the lines go to, `FAIRTRIAL_CASE_TIMEOUT_S` bounds a case. Standard library only, Python 3.8 and later, pytest 7
and later. Each line is written whole, when its event happens: a process that dies loses the case it was at.

Tests replace what they can name (clocks, files, `json`), so what is needed is held from the beginning, and held by
objects: libraries that patch look through the globals of modules.
"""

import base64
import dataclasses
import hashlib
import inspect
import json
import math
import os
import re
import signal
import sys
import threading
import time
import traceback

import pytest

FORMAT = 1
MOST_DEPTH = 24
MOST_VALUE_BYTES = 4 << 20
MOST_CASE_BYTES = 8 << 20
MOST_OUTPUT_BYTES = 1 << 20
MOST_SOURCE_CHARACTERS = 16 << 10
MOST_ERROR_LINES = 40
MOST_ERROR_CHARACTERS = 16 << 10
SIGNAL = signal.SIGRTMAX - 3
GRACE_S = 5.0  # machines stall for seconds
MACHINERY = ("_pytest", "pluggy", "contextlib", "functools", "warnings", __name__)

VALUES = pytest.StashKey()


def taken_from_environment():
    """What the plug-in is told. Tests, and what they start, find the environment that they would have without it."""

    def take_away(name, separator, ours):
        parts = os.environ.pop(name, "").split(separator)
        others = separator.join(part for part in parts if part and part != ours)
        if others:
            os.environ[name] = others

    loading = {name: os.environ[name] for name in ("PYTEST_PLUGINS", "PYTHONPATH") if name in os.environ}
    take_away("PYTEST_PLUGINS", ",", __name__)
    take_away("PYTHONPATH", ":", os.path.dirname(os.path.abspath(__file__)))
    return {
        "results": os.environ.pop("FAIRTRIAL_CASES", None),
        "case_timeout_s": os.environ.pop("FAIRTRIAL_CASE_TIMEOUT_S", None),
        "loading": loading,
    }


TOLD = taken_from_environment()


def pytest_configure(config):
    is_worker = hasattr(config, "workerinput")
    told = config.workerinput.get("fairtrial", {}) if is_worker else dict(TOLD)
    TOLD.clear()  # a second session in this process would be a test's own
    if not told.get("results"):
        return
    lines = Lines(told["results"])
    if not is_worker:
        config.pluginmanager.register(Reporter(lines, told), "fairtrial-cases-reporter")
    limit = told["case_timeout_s"]
    watchdog = Watchdog(float(limit), lines) if limit else None
    config.pluginmanager.register(Runner(watchdog), "fairtrial-cases-runner")


@pytest.fixture
def record_value(request):
    """Records a value of this case: `record_value(name, value)`. Candidates must give what the base gave.

    Floats may differ by 1e-9 of their size. The value is taken as it is now; later changes do not count.
    """
    values = request.node.stash[VALUES] = []
    room = MOST_CASE_BYTES

    def record_value(name, value):
        nonlocal room
        form, size = encoded(value, min(room, MOST_VALUE_BYTES))
        room -= size
        values.append([text(str(name)), form])

    return record_value


class Lines:
    """The file of results. Opened for each line: a test may close any descriptor, and number another file so."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.held = (os.open, os.write, os.close, os.getpid, json.JSONEncoder(ensure_ascii=False).encode)
        self.flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC

    def write(self, event, **fields):
        os_open, os_write, os_close, getpid, encode = self.held
        if getpid() != self.pid:
            return  # a fork of a test that came back to pytest's own code
        line = encode(dict(event=event, **fields)).encode("utf-8", "backslashreplace") + b"\n"
        with self.lock:
            descriptor = os_open(self.path, self.flags, 0o666)
            try:
                while line:
                    line = line[os_write(descriptor, line) :]
            finally:
                os_close(descriptor)


class Reporter:
    """Writes what pytest reports. With pytest-xdist only the controller has one; reports of workers come to it."""

    def __init__(self, lines, told):
        self.lines = lines
        self.told = told
        self.open = {}
        self.collected = set()
        self.sources = {}
        self.lines.write(
            "session",
            format=FORMAT,
            pytest=pytest.__version__,
            python=".".join(map(str, sys.version_info[:3])),
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self):
        os.environ.update(self.told["loading"])  # workers load us as we were loaded, and tests run in them alone

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        node.workerinput["fairtrial"] = dict(self.told, results=self.lines.path)

    def pytest_collectreport(self, report):
        if report.failed and report.nodeid not in self.collected:
            self.collected.add(report.nodeid)
            self.lines.write("end", id=text(report.nodeid) + "::collection", status="error", error=error_of(report))

    def pytest_runtest_logstart(self, nodeid):
        self.open[nodeid] = Case()
        self.lines.write("begin", id=text(nodeid))

    def pytest_runtest_logreport(self, report):
        case = self.open.setdefault(report.nodeid, Case())
        subtest = described(report)
        if subtest is not None:
            self.write_subtest(case, report, subtest)
            return
        case.take(report)
        if report.when not in ("setup", "call", "teardown"):
            self.finish(report.nodeid)  # xdist: a worker died with it, and nothing more will come

    def pytest_runtest_logfinish(self, nodeid):
        self.finish(nodeid)

    def pytest_internalerror(self, excrepr):
        self.lines.write("internal_error", error=last_lines(str(excrepr)))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus):
        for nodeid in list(self.open):
            if self.open[nodeid].status is not None:
                self.finish(nodeid)
        self.lines.write("finish", exit=int(exitstatus))

    def write_subtest(self, case, report, subtest):
        status = status_of(report)
        if status in ("failed", "timed_out"):
            case.failed_subtests += 1
        self.lines.write(
            "end",
            id=text(report.nodeid + " " + subtest),
            status=status,
            duration=report.duration,
            **output_of(report),
            **error_field(report),
        )

    def finish(self, nodeid):
        case = self.open.pop(nodeid, None)
        if case is None:
            return
        fields = dict(case.fields)
        if case.source is not None:
            fields["source"] = self.number_of(*case.source)
        self.lines.write("end", id=text(nodeid), status=case.final_status(), duration=case.duration, **fields)

    def number_of(self, place, source):
        if place not in self.sources:
            if source is None:
                return None
            self.sources[place] = len(self.sources)
            self.lines.write("source", number=self.sources[place], text=source)
        return self.sources[place]


class Case:
    """What the phases of one case said so far."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.status = None
        self.duration = 0.0
        self.fields = {}
        self.source = None
        self.failed_subtests = 0

    def take(self, report):
        if report.outcome == "rerun":
            self.reset()  # pytest-rerunfailures: what counts is the last attempt
            return
        status = status_of(report)
        if self.status is None or BADNESS[status] > BADNESS[self.status]:
            self.status = status
            self.fields.update(error_field(report))
        self.duration += report.duration
        self.fields.update(output_of(report))
        recorded = getattr(report, "fairtrial", None)
        if recorded is not None:
            self.fields["values"] = json.JSONDecoder().decode(recorded["values"])
            self.source = recorded["source"]

    def final_status(self):
        if self.status is None:
            return "error"
        # pytest 9 counts so; for earlier versions it is done here, so that a case means the same.
        return "failed" if self.status == "passed" and self.failed_subtests else self.status


# Of the phases of a case the worst decides; a failed test whose teardown fails too is a failed test.
BADNESS = {
    "passed": 0,
    "xpassed": 1,
    "xfailed": 2,
    "skipped": 3,
    "error": 4,
    "failed": 5,
    "crashed": 6,
    "timed_out": 7,
}


def described(report):
    """A subtest's own name: of pytest 9, or of the package pytest-subtests."""
    for name in ("_sub_test_description", "sub_test_description"):
        if hasattr(report, name):
            return getattr(report, name)()
    return None


def status_of(report):
    if getattr(report, "fairtrial_timed_out", False):
        return "timed_out"
    expected = hasattr(report, "wasxfail")
    if report.outcome == "skipped":
        return "xfailed" if expected else "skipped"
    if report.outcome == "passed":
        return "xpassed" if expected and report.when == "call" else "passed"
    return {"call": "failed", "setup": "error", "teardown": "error"}.get(report.when, "crashed")


class Runner:
    """Works where cases run: in this process, or in each worker of pytest-xdist."""

    def __init__(self, watchdog):
        self.watchdog = watchdog
        self.sent = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        report = outcome.get_result()
        if call.excinfo is not None and call.excinfo.errisinstance(CaseTimedOut):
            report.fairtrial_timed_out = True
        if call.when == "teardown":
            # As text: what xdist sends cannot be any data, and a list of lists of floats is large there.
            values = json.JSONEncoder().encode(item.stash.get(VALUES, []))
            report.fairtrial = {"values": values, "source": self.source_of(item)}

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        if self.watchdog:
            self.watchdog.begin(item.nodeid)
        yield
        if self.watchdog:
            self.watchdog.disarm()  # the exception may have struck where that is done

    # Innermost, and around phases only: whatever is raised there is the case's failure, never pytest's.
    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_setup(self, item):
        yield from self.watched()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item):
        yield from self.watched()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item):
        if self.watchdog:
            self.watchdog.begin(item.nodeid)  # whoever used up its time may still clean up
        yield from self.watched()

    def watched(self):
        if self.watchdog:
            self.watchdog.arm()
        try:
            yield
        finally:
            if self.watchdog:
                self.watchdog.disarm()

    def source_of(self, item):
        """Where the test's source is, and the source itself when this process says so first."""
        function = getattr(item, "function", None)
        try:
            function = inspect.unwrap(function)
            place = "%s:%d" % (function.__code__.co_filename, function.__code__.co_firstlineno)
            if place in self.sent:
                return [text(place), None]
            source = text(inspect.getsource(function)[:MOST_SOURCE_CHARACTERS])
        except Exception:  # a doctest, a file of another kind, a function made of text
            return None
        self.sent.add(place)
        return [text(place), source]


class CaseTimedOut(pytest.fail.Exception):
    """A case took too long. No `Exception`, which code under test catches, but a kind that pytest's teardown does."""


class Watchdog:
    """Ends a case that takes too long: by an exception in the main thread, or if that fails with its process."""

    def __init__(self, limit_s, lines):
        self.limit_s = limit_s
        self.grace_s = GRACE_S
        self.lines = lines
        self.now = time.monotonic
        self.exit = os._exit
        self.changed = threading.Condition()
        self.case = None
        self.case_ends = None
        self.deadline = None
        self.turn = 0
        self.expired = self.raised = False
        self.main = threading.main_thread().ident
        self.signals = threading.current_thread() is threading.main_thread()
        if self.signals:
            signal.signal(SIGNAL, self.on_signal)
        self.kill = signal.pthread_kill
        threading.Thread(target=self.watch, name="fairtrial-watchdog", daemon=True).start()

    def begin(self, case):
        self.case = case
        self.case_ends = self.now() + self.limit_s

    def arm(self):
        with self.changed:
            self.turn += 1
            self.expired = self.raised = False
            self.deadline = self.case_ends
            self.changed.notify()

    def disarm(self):
        self.deadline = None  # before the lock: from here on the handler raises no more
        with self.changed:
            self.changed.notify()

    def on_signal(self, number, frame):
        if self.deadline is None or not self.expired or self.raised:
            return
        # Not inside pytest's own work, which would be left half done: the signal comes again.
        if frame is None or frame.f_globals.get("__name__", "").split(".")[0] not in MACHINERY:
            self.raised = True
            raise CaseTimedOut("the case took longer than %g s" % self.limit_s)

    def watch(self):
        with self.changed:
            while True:
                deadline = self.deadline
                if deadline is None:
                    self.changed.wait()
                elif not self.passed(deadline):
                    self.changed.wait(deadline - self.now())
                else:
                    self.interrupt(self.turn)

    def passed(self, deadline):
        return self.now() >= deadline

    def interrupt(self, turn):
        """Asks until the exception is raised; then waits until the phase is over, or ends the process."""
        stacks = stacks_of_all()
        self.expired = True
        end = self.now() + self.grace_s
        while self.deadline is not None and self.turn == turn:
            if self.passed(end):
                self.lines.write("stuck", id=text(self.case), error=last_lines(stacks))
                self.exit(1)
            if self.signals and not self.raised:
                self.kill(self.main, SIGNAL)
            self.changed.wait(0.02)


def stacks_of_all():
    return "".join(
        "Thread %d:\n%s" % (thread, "".join(traceback.format_stack(frame)))
        for thread, frame in sys._current_frames().items()
        if thread != threading.get_ident()
    )


def output_of(report):
    """Standard output of all phases so far, up to a bound; of what is left out, the number of bytes and a digest."""
    parts = [content for name, content in report.sections if name.startswith("Captured stdout")]
    output = "".join(parts).encode("utf-8", "backslashreplace")
    if not output:
        return {}
    half = MOST_OUTPUT_BYTES // 2
    if len(output) <= MOST_OUTPUT_BYTES:
        return {"stdout": output.decode()}
    middle = output[half:-half]
    return {
        "stdout": output[:half].decode("utf-8", "replace") + output[-half:].decode("utf-8", "replace"),
        "dropped": {"bytes": len(middle), "sha256": hashlib.sha256(middle).hexdigest()},
    }


def error_field(report):
    return {} if report.passed else {"error": error_of(report)}


def error_of(report):
    return last_lines(report.longreprtext)


def last_lines(whole):
    return text("\n".join(whole.splitlines()[-MOST_ERROR_LINES:])[-MOST_ERROR_CHARACTERS:])


def text(string):
    """Without lone surrogates, which JSON has no characters for."""
    return string.encode("utf-8", "backslashreplace").decode("utf-8")


def encoded(value, room):
    """A value as JSON data, and its size. Plain JSON means itself; all else is an object with one key."""
    form = Encoder().encode(value)
    written = json.JSONEncoder().encode(form)
    if len(written) <= room:
        return form, len(written)
    digest = hashlib.sha256(written.encode()).hexdigest()
    return {"large": {"type": type_name(type(value)), "bytes": len(written), "sha256": digest}}, 0


class Encoder:
    def __init__(self):
        self.inside = []

    def encode(self, value):
        plain = self.scalar(value)
        if plain is not None or value is None:
            return plain
        if any(value is outer for outer in self.inside):
            return {"cycle": len(self.inside) - [value is outer for outer in self.inside].index(True)}
        if len(self.inside) >= MOST_DEPTH:
            return other(value)
        self.inside.append(value)
        try:
            return self.compound(value)
        except Exception:  # an object whose parts cannot be had
            return other(value)
        finally:
            self.inside.pop()

    def scalar(self, value):
        kind = type(value)
        if kind is bool:
            return value
        if kind is int:
            return value if -(1 << 63) <= value < 1 << 63 else {"int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is complex:
            return {"complex": [self.scalar(value.real), self.scalar(value.imag)]}
        if kind is str:
            return characters(value)
        if kind in (bytes, bytearray, memoryview):
            return {kind.__name__: base64.b64encode(bytes(value)).decode()}
        return None

    def compound(self, value):
        kind = type(value)
        if kind is list:
            return [self.encode(item) for item in value]
        if kind in (tuple, set, frozenset):
            return {kind.__name__: [self.encode(item) for item in value]}
        if kind is dict:
            return {"dict": [[self.encode(key), self.encode(item)] for key, item in value.items()]}
        if isinstance(value, BaseException):
            return {"exception": [type_name(kind), characters(without_addresses(str(value)))]}
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self.array(numpy, value)
        for base in () if is_enum(value) else (str, bytes, int, float, complex, tuple, list, dict, set, frozenset):
            if isinstance(value, base):
                return {"subclass": [type_name(kind), self.encode(plain_of(base, value))]}
        fields = fields_of(value)
        if fields is None:
            return other(value)
        return {"object": [type_name(kind), [[text(str(name)), self.encode(item)] for name, item in fields]]}

    def array(self, numpy, value):
        kind = "" if isinstance(value, numpy.ndarray) else "scalar "
        array = numpy.asarray(value)
        shape = {"dtype": kind + str(array.dtype), "shape": list(array.shape)}
        if type(value) is not numpy.ndarray and isinstance(value, numpy.ndarray):
            shape["dtype"] = type_name(type(value)) + " " + shape["dtype"]
        wide = {"f": "<f8", "c": "<c16"}.get(array.dtype.kind)
        if wide and array.dtype.itemsize <= numpy.dtype(wide).itemsize:
            return {"floats": dict(shape, data=self.data(numpy, array.astype(wide)))}
        if array.dtype.kind in "biumM":
            little = array.astype(array.dtype.newbyteorder("<"))
            return {"array": dict(shape, data=self.data(numpy, little))}
        return {"items": dict(shape, items=[self.encode(item) for item in array.ravel().tolist()])}

    def data(self, numpy, array):
        raw = numpy.ascontiguousarray(array).tobytes()
        return base64.b64encode(raw).decode()


def plain_of(base, value):
    """The builtin value inside an object of a subclass, past whatever that overrides."""
    if base is dict:
        return dict(dict.items(value))
    if base in (list, tuple, set, frozenset):
        return base(base.__iter__(value))
    if base is str:
        return str.__str__(value)
    if base is int:
        return int.__int__(value)
    if base is float:
        return float.__float__(value)
    return base(value)


def is_enum(value):
    enum = sys.modules.get("enum")
    return enum is not None and isinstance(value, enum.Enum)


def fields_of(value):
    """The attributes of an object whose `repr` would not tell them apart, or would hide its floats in text."""
    if isinstance(value, type) or callable(value):
        return None
    if dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if type(value).__repr__ is object.__repr__ and hasattr(value, "__dict__"):
        return list(vars(value).items())
    return None


def other(value):
    try:
        shown = repr(value)
    except Exception as error:
        shown = "<repr raised %s>" % type_name(type(error))
    return {"repr": [type_name(type(value)), characters(without_addresses(shown))]}


def characters(string):
    """A string; one with lone surrogates by its bytes."""
    try:
        string.encode("utf-8")
        return string
    except UnicodeEncodeError:
        return {"surrogates": base64.b64encode(string.encode("utf-8", "surrogatepass")).decode()}


def without_addresses(shown, address=re.compile(r" at 0x[0-9a-fA-F]+")):
    return address.sub("", shown)


def type_name(kind):
    module = getattr(kind, "__module__", None)
    name = text(getattr(kind, "__qualname__", None) or kind.__name__)
    return name if module in (None, "builtins") else text(str(module)) + "." + name
