# A worker's life: take a call, run it, answer exactly once. It keeps its own references to all it needs, since a
# candidate may change anything that is reachable by name.
import _socket
import faulthandler as _faulthandler
import sys as _sys
from marshal import dumps as _dump_header
from marshal import loads as _load_header
from mmap import MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap
from os import _exit, close, getpid, writev
from os import read as _read
from os import urandom as _urandom
from struct import Struct as _Struct
from struct import unpack_from as _unpack_from
from time import monotonic_ns as _monotonic_ns
from time import process_time_ns as _process_time_ns

_U32 = _Struct("<I")
_KIND_AND_SIZE = _Struct("<BQ")
_USAGE = _CLOCKS = _Struct("<QQ")
_IOV_MAX = 1024
_TICK_NS = 10_000_000
_getrusage, _RUSAGE_SELF = _resource.getrusage, _resource.RUSAGE_SELF


_REHEARSAL_SOURCE = "def f(x):\n    return [x]\n"
_REHEARSAL_HEADER = _dump_header({"kind": "source", "env": {"A": "b"}, "path": [], "rlimits": [], "inline": 1 << 16})
_REHEARSAL_BODY = b"".join(encode(((1,), {})))


class Refused(Exception):
    """The candidate cannot be called as asked: `type` and message go into the record, there are no frames."""

    def __init__(self, type, message):
        self.type = type
        self.message = message


class BadResult(Exception):
    """The value cannot be sent; holds the error that says why."""


async def _nothing():
    pass


_coroutine = _nothing()
_Coroutine = type(_coroutine)
_coroutine.close()
_Module = type(_sys)
# `exec` would hand down the shim's private copy.
_candidate_builtins = vars(_modules["builtins"])


def _make_caller():
    """Calls from a frame whose globals are `__main__`'s: `eval`, `exec` and `globals` act on the caller's frame."""
    names = vars(_modules["__main__"])
    text = "def call(function, args, kwargs): return function(*args, **kwargs)"
    exec(compile(text, "<fairtrial>", "exec"), names)
    return names.pop("call")


_main = vars(_modules["__main__"])
_call = _make_caller()
_MAX_COMPILED = 64
_INITIALIZER_CAPTURE = 16 << 10


class Worker:
    """Runs calls, one after the other, and answers each exactly once."""

    def __init__(self, dump_signal, id_address, host, preloads, authkey=None):
        """Made in the zygote: each page that a worker need not write after the fork saves it a fault."""
        open_streams()
        here, there = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.descriptor = raise_descriptor(here.fileno())  # kept for the worker's own
        self.channel = Channel(_socket.socket(fileno=self.descriptor))
        here.close()
        there.close()
        if dump_signal:
            # Where a hung call hangs: the engine sends the signal just before it kills (EX-51).
            _faulthandler.register(dump_signal, file=self.descriptor, all_threads=True, chain=False)
        self.id_address = id_address
        self.terms = Terms(STARTUP)
        self.after_import = AfterImport()
        self.compiled = {}
        self.functions = Functions()
        self.initialized = None
        self.host = host
        self.preloads = preloads
        self.authkey = authkey
        self.source = self.function = None  # of the present call: its file name and text, or what it calls
        self.after_import.act("multiprocessing.spawn", self.watch_spawning, lasting=True)
        self.unmet = None  # why the worker is not where its host wants it
        self.home = None
        self.running = False
        self.pid = None
        self.claims = None
        self.header_text = self.header = None  # of the last call
        self.met = None  # the header whose terms hold and need no renewal

    def begin(self, channel, stdout, stderr):
        """After the fork: takes its own descriptors, and draws its own random numbers."""
        self.pid = getpid()
        _dup2(stdout, 1)
        _dup2(stderr, 2)
        _dup2(channel, self.descriptor, False)
        close(channel)
        close(stdout)
        close(stderr)
        self.channel.socket.setblocking(True)
        _sigmask(_SIG_SETMASK, ())
        try:
            self.preloads.make_own()
        except SetupFailed as error:
            self.unmet = error
        numpy_random = _modules.get("numpy.random")
        if numpy_random is not None:
            # 128 bits, as four words: `seed()` takes eight times as long. `random` is reseeded by CPython itself.
            numpy_random.seed(list(_unpack_from("<4I", _urandom(16))))
        if self.host:
            self.after_import.act("multiprocessing.process", self.adopt, lasting=True)

    def confine(self, plan, descriptors):
        """Before any code of a call. If it cannot be, the first call tells."""
        try:
            run_plan(plan, descriptors)
        except SetupFailed as error:
            self.unmet = error
        for descriptor in descriptors:
            close(descriptor)

    def adopt(self, process):
        """In `multiprocessing`'s eyes a worker is not the main process (PY-29), but one of its host's."""
        current = process.current_process()
        current.name = "FairtrialWorker-%d" % getpid()
        if self.authkey is not None:
            current.authkey = bytes.fromhex(self.authkey)

    def take_logging(self, text):
        """As a forked child has it of its parent: levels, and what the root writes to a standard stream."""
        if text:
            terms = _load_header(bytes.fromhex(text))
            self.after_import.act("logging", lambda logging: _set_up_logging(logging, *terms), lasting=True)

    def watch_spawning(self, spawn):
        watch_spawning(spawn, self)

    def rehearse(self):
        """While no call waits, in a worker forked ahead: each page that a call touches first after a fork is a fault,
        a third of a millisecond in all. Leaves nothing behind."""
        try:
            _load_header(_REHEARSAL_HEADER)
            args, kwargs = decode(_REHEARSAL_BODY)
            code = compile(_REHEARSAL_SOURCE, "<fairtrial>", "exec", 0, True)
            module = _Module("__candidate__")
            module.__builtins__ = _candidate_builtins
            exec(code, module.__dict__)
            b"".join(encode(_call(_find_function(module.__dict__, "f", "<fairtrial>"), args, kwargs)))
        except BaseException:
            pass  # the call itself will tell

    def serve(self):
        if not self.channel.is_waiting():
            self.rehearse()
        try:
            while True:
                kind, generation, payload = self.channel.next_call()
                if kind == INITIALIZE:
                    if not self.initialize(generation, payload):
                        break
                    payload = None
                    continue
                if kind == AHEAD and not self.claim():
                    self.channel.send(SKIPPED, generation)
                    continue
                self.channel.send(ACK, generation, _CLOCKS.pack(_monotonic_ns(), _process_time_ns()))
                if not self.answer(generation, payload):
                    break
        except BaseException:
            if getpid() == self.pid:
                self.channel.release()
            _exit(_BROKEN)  # never at the cost of the next call, which is not acknowledged yet
        while True:  # the engine ends this process; neither `atexit` nor threads delay anything
            try:
                self.channel.discard()
            except BaseException:
                pass  # raised by a signal handler that the candidate left

    def claim(self):
        """Takes a call that was sent ahead, unless the engine took it back: each is one count of a semaphore."""
        if self.claims is None:
            descriptor = self.channel.take_descriptor()  # came with the first of them
            self.claims = raise_descriptor(descriptor)
            close(descriptor)
        try:
            return bool(_read(self.claims, 8))
        except BlockingIOError:
            return False

    def answer(self, generation, payload):
        """Runs one call and replies. Tells whether another may follow."""
        self.running = False
        header_end = 4 + _U32.unpack_from(payload)[0]
        header_text = bytes(payload[4:header_end])  # and no view: that would keep the arguments
        if header_text != self.header_text:
            self.header_text, self.header = header_text, _load_header(header_text)
        header = self.header
        pickled = header["kind"] == "pickled"
        reuse = header.get("reuse")
        if reuse and self.terms.kept is None:
            self.terms.prepare_reuse(self.host)
            self.channel.expect_many()
        before = _process_time_ns() if self.claims is not None else None
        try:
            if pickled:
                value = self.call_pickled(header, payload, header_end)
            else:
                value = self.call_source(generation, header, payload, header_end)
            if type(value) is _Coroutine:
                value = _run_coroutine(value)
            self.flush()
            kind, chunks = VALUE, self.encode_value(value, header)
            value = None
        except BaseException as error:
            self.flush(1)
            kind, chunks = ERROR, [b"".join(encode(self.record(error, header)))]
            error = None
        if before is not None:
            # With calls sent ahead the next one runs before the engine could look.
            self.channel.hold(USAGE, generation, _USAGE.pack(*_split_time(_process_time_ns() - before)))
        self.reply(generation, kind, chunks, header, reuse and self.channel.has_call())
        chunks = None
        if reuse:
            if not pickled:
                _modules.pop("__candidate__", None)
                self.terms.leave()  # first: the reply is out, so the directory may be gone at any moment
            self.terms.settle()
            self.after_import.clear()
        return reuse

    # -- before the first call

    def initialize(self, generation, payload):
        """Goes where the host is and runs its initializer, if it has one: what that leaves is what every call finds.
        Tells whether calls may follow."""
        header_end = 4 + _U32.unpack_from(payload)[0]
        header = _load_header(payload[4:header_end])
        if not header.get("initializer"):
            try:
                self.set_up(header)
            except SetupFailed as error:
                self.unmet = error  # the first call will tell
            self.terms.take_base()
            return True
        self.channel.send(ACK, generation, _SIZE.pack(_monotonic_ns()))
        try:
            _load_pickle()
            self.set_up(header)
            work = self.unpickle(header, payload, header_end, "the initializer")
            before = dict(_main)
            _call(*work)
            # The host's values of the same names come with each function that goes by value; these are newer.
            self.initialized = {name: value for name, value in _main.items() if before.get(name, _main) is not value}
            work = before = None
            self.flush()
        except BaseException as error:
            self.flush(1)
            self.channel.send(ERROR, generation, self.initializer_record(error))
            return False
        self.terms.take_base()
        self.channel.send(READY, generation)
        return True

    def initializer_record(self, error):
        try:
            record = self.describe(error, _INITIALIZER_CAPTURE)
            if not isinstance(error, SetupFailed):
                record["message"] = bounded(summary(error), _INITIALIZER_CAPTURE)
        except BaseException:  # out of memory, or out of stack
            record = {"message": UNPRINTABLE, "traceback": ""}
        record["verdict"], record["type"] = "setup_failed", "InitializerFailed"
        if isinstance(error, SetupFailed) and error.__cause__ is not None:
            error = error.__cause__
        try:
            exception = _dumps(error)
            if len(exception) <= _INITIALIZER_CAPTURE:  # the record goes in one frame
                record["exception"] = exception
        except BaseException:
            pass  # the host makes do with message and traceback
        return b"".join(encode(record))

    # -- before the user's code

    def set_up(self, header):
        if header is self.met:
            return
        if self.unmet:
            raise self.unmet
        self.met = None
        env = header.get("env")
        if env:
            worker_id = env.get("FAIRTRIAL_WORKER_ID")
            if worker_id and self.id_address and len(worker_id) == 12:
                # In the block that `execve` left, which /proc/PID/environ shows, here and in every child.
                _memmove(self.id_address, worker_id.encode("ascii"), 12)
                self.id_address = 0
        self.terms.meet(header)
        seed = env.get("FAIRTRIAL_SEED") if env else None
        if seed is not None:
            self.seed(seed)
        elif header.get("kind") == "pickled" and not (header.get("path") or header.get("rlimits")):
            self.met = header  # `settle` sees to it

    def seed(self, text):
        try:
            seed = int(text)
        except ValueError:
            raise SetupFailed("FAIRTRIAL_SEED is not an integer: `%s`" % text) from None
        self.after_import.act("random", lambda random: random.seed(seed))
        self.after_import.act("numpy.random", lambda random: random.seed(seed % 2**32))
        self.preloads.generators.seed(seed)

    def body(self, header, payload, start):
        """The encoded arguments: behind the header, or mapped privately from the descriptor that came along."""
        size = header.get("body_size")
        if size is None:
            return memoryview(payload)[start:]
        descriptor = self.channel.take_descriptor()
        try:
            mapping = mmap(descriptor, size, MAP_PRIVATE, PROT_READ | PROT_WRITE)
        finally:
            close(descriptor)
        return memoryview(mapping)

    # -- the two kinds of calls

    def call_source(self, generation, header, payload, start):
        filename = self.home = header.get("filename") or "<source>"
        source, name = header["source"], header["function"]
        self.set_up(header)
        try:
            read = _load_header if header.get("marshal") else decode
            args, kwargs = read(self.body(header, payload, start))
        except BaseException as error:
            raise SetupFailed("cannot decode the arguments: %s" % summary(error)) from error
        self.know_source(filename, source)
        self.source = filename, source
        code = self.compiled.get((filename, source))
        if code is None:
            code = compile(source, filename, "exec", 0, True)
            if len(self.compiled) >= _MAX_COMPILED:
                self.compiled.clear()
            self.compiled[filename, source] = code
        # Not `__main__`: a script's main guard stays shut. Registered, so that dataclasses and typing find it.
        module = _Module("__candidate__")
        module.__file__ = filename
        module.__builtins__ = _candidate_builtins
        _modules["__candidate__"] = module
        self.channel.send(RUN, generation)
        self.running = True
        exec(code, module.__dict__)
        return _call(_find_function(module.__dict__, name, filename), args, kwargs)

    def call_pickled(self, header, payload, start):
        self.home = self.source = None
        if not _pickle_functions:
            _load_pickle()  # now at the latest: the call's terms can change what is found
        self.set_up(header)
        function, args, kwargs = self.unpickle(header, payload, start, "the arguments")
        if self.initialized:
            _main.update(self.initialized)
        self.running = True
        self.function = function
        try:
            return _call(function, args, kwargs)
        finally:
            self.function = None

    def unpickle(self, header, payload, start, what):
        loads = _pickle_functions["loads"]
        try:
            if "body_size" not in header:
                length, count = _PICKLE_HEAD.unpack_from(payload, start)
                if not count:
                    function, args, kwargs = loads(payload[start + 16 : start + 16 + length])
                    return function, args, kwargs
                if count == _BY_VALUE and type(payload) is bytes:
                    at = start + 24 + _SIZE.unpack_from(payload, start + 16)[0]
                    function = self.functions.make(payload[start + 24 : at])
                    args, kwargs = loads(payload[at : at + length])
                    return function, args, kwargs
            pickle, buffers, by_value = _split_pickle(self.body(header, payload, start))
            function = self.functions.make(bytes(by_value)) if by_value else None
            work = loads(pickle, buffers=buffers) if buffers else loads(pickle)
            function, args, kwargs = (function,) + work if by_value else work
        except BaseException as error:
            raise SetupFailed("cannot unpickle %s: %s" % (what, summary(error))) from error
        return function, args, kwargs

    def know_source(self, filename, source):
        sources.clear()
        sources[filename] = source

        def fill(linecache):
            lines = [line + "\n" for line in source.splitlines()]
            linecache.cache[filename] = (len(source), None, lines, filename)

        self.after_import.act("linecache", fill)

    # -- after the user's code

    def flush(self, code=0):
        if getpid() != self.pid:
            # The candidate forked, and the child came back up to us: it has no call to answer.
            _flush_streams()
            _exit(code)
        if _touched or not _signals_are_watched:
            _setitimer(0, 0)  # a handler must not raise in the shim's own code
        _flush_streams()

    def encode_value(self, value, header):
        try:
            return encode_pickle(value) if header.get("result") == "pickle" else encode(value)
        except BaseException as error:
            raise BadResult(error) from None

    def record(self, error, header):
        capture = header.get("capture") or 1 << 20
        if isinstance(error, MemoryError):
            forget_locals(error)  # the report needs some room
        try:
            record = self.describe(error, capture)
        except BaseException:  # out of memory, or out of stack
            verdict = "exception" if self.running else "setup_failed"
            record = {"verdict": verdict, "type": type_name(type(error)), "message": UNPRINTABLE, "traceback": ""}
        if isinstance(error, BadResult):
            error = error.args[0]
        if header["kind"] == "pickled" and header.get("result") == "pickle" and self.running:
            try:
                record["exception"] = _dumps(error)
            except BaseException:
                pass  # the host makes do with type, message and traceback
        return record

    def describe(self, error, capture):
        if isinstance(error, Refused):
            message = bounded(error.message, capture)
            report = "%s: %s\n" % (error.type, message)
            return {"verdict": "exception", "type": error.type, "message": message, "traceback": report}
        if isinstance(error, SetupFailed):
            cause = error.__cause__ or error
            record = error_record(cause, "setup_failed", capture, self.home)
            record["message"] = bounded(str(error), capture)
            return record
        if isinstance(error, BadResult):
            return error_record(error.args[0], "bad_result", capture, self.home)
        return error_record(error, "exception", capture, self.home)

    def reply(self, generation, kind, chunks, header, more):
        size = _nbytes(chunks[0]) if len(chunks) == 1 else sum(map(_nbytes, chunks))
        if size <= header.get("inline", 65536):
            # With a call waiting, what is left to do before its acknowledgement takes microseconds.
            (self.channel.hold if more else self.channel.send)(kind, generation, b"".join(chunks))
            return
        self.channel.send(NEED, generation, _SIZE.pack(size))
        descriptor = self.channel.next_file(generation)
        try:
            _write_chunks(descriptor, chunks)
        except OSError as error:
            close(descriptor)
            record = error_record(error, "bad_result", 4096)
            self.channel.send(ERROR, generation, b"".join(encode(record)))
            return
        close(descriptor)
        self.channel.send(FILED, generation, _KIND_AND_SIZE.pack(kind, size))


def _set_up_logging(logging, disabled, levels, handlers):
    for name, level in levels:
        logging.getLogger(name or None).setLevel(level)
    logging.disable(disabled)
    if logging.getLogger().handlers:
        return  # those of a preload
    for stream, level, form in handlers:
        handler = logging.StreamHandler(getattr(_sys, stream))
        handler.setLevel(level)
        if form is not None:
            handler.setFormatter(logging.Formatter(*form))
        logging.getLogger().addHandler(handler)


def _find_function(names, name, filename):
    missing = object()
    found = names.get(name, missing)
    if found is missing and "." in name:  # `Class.method`
        first, *rest = name.split(".")
        found = names.get(first, missing)
        for part in rest:
            found = getattr(found, part, missing) if found is not missing else found
    if found is missing:
        defined = [
            each
            for each, value in names.items()
            if callable(value) and getattr(value, "__module__", None) == "__candidate__" and not each.startswith("__")
        ]
        message = "no function `%s` in `%s`" % (name, filename)
        if defined:
            message += "; defined: " + ", ".join("`%s`" % each for each in defined)
            nearest = near(name, defined)
            message += " (did you mean `%s`?)" % nearest if nearest else ""
        else:
            message += ", which defines none"
        raise Refused("LookupError", message)
    if not callable(found):
        message = "`%s` in `%s` is not callable: its type is `%s`" % (name, filename, type_name(type(found)))
        raise Refused("TypeError", message)
    return found


def _run_coroutine(coroutine):
    import asyncio

    return asyncio.run(coroutine)


def _flush_streams():
    for name in ("stdout", "stderr"):
        try:
            getattr(_sys, name).flush()
        except BaseException:
            pass  # closed, detached or replaced by anything at all


def _split_time(total_ns):
    """User and system time. The kernel knows the two parts only by ticks, which say nothing of a call within one."""
    if total_ns < _TICK_NS:
        return total_ns, 0
    usage = _getrusage(_RUSAGE_SELF)
    user_ns = int(total_ns * usage.ru_utime / (usage.ru_utime + usage.ru_stime))
    return user_ns, total_ns - user_ns


def _nbytes(chunk):
    return len(chunk) if type(chunk) is bytes else memoryview(chunk).nbytes


def _write_chunks(descriptor, chunks):
    """Straight from the buffers: a value is not copied on its way to the file."""
    views = [memoryview(chunk).cast("B") for chunk in chunks if _nbytes(chunk)]
    first = 0
    while first < len(views):
        written = writev(descriptor, views[first : first + _IOV_MAX])
        while written:
            size = views[first].nbytes
            if written < size:
                views[first] = views[first][written:]
                break
            written -= size
            first += 1
