"""Plays launcher and engine to the shim: spawns zygotes, asks for workers, speaks frames. Every wait has a bound."""

import array
import ctypes
import fcntl
import marshal
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

SHIM_FILES = Path(__file__).resolve().parent.parent / "fairtrial" / "_shim"
NAMES = "codec report restore frames fork pickles imports preloads spawning worker serve"
PARTS = tuple(part + ".py" for part in NAMES.split())
HEADER = struct.Struct("<2sBBIQ")
SHIM, CONFIGURE, CALL, FILE, INITIALIZE = 1, 2, 3, 4, 6
READY, ACK, RUN, NEED, VALUE, ERROR, FILED = 17, 18, 19, 20, 21, 22, 23
WAIT_S = 30
DUMP_SIGNAL = signal.SIGRTMIN + 5
PR_SET_CHILD_SUBREAPER = 36


def shim_text():
    return b"\n".join((SHIM_FILES / part).read_bytes() for part in PARTS)


def codec():
    """`encode` and `decode` as the engine would have them."""
    names = {"__name__": "codec"}
    exec(compile((SHIM_FILES / "codec.py").read_bytes(), "codec.py", "exec"), names)
    return (lambda value: b"".join(names["encode"](value))), names["decode"]


encode, decode = codec()


def interpreters():
    """Every CPython from 3.8 on that pyenv or PATH offers; FAIRTRIAL_TEST_PYTHONS (split at `:`) overrides."""
    named = os.environ.get("FAIRTRIAL_TEST_PYTHONS")
    if named:
        return named.split(":")
    found = {}
    candidates = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
    for directory in os.environ.get("PATH", "").split(":"):
        candidates += [Path(directory) / ("python3.%d" % minor) for minor in range(8, 16)]
    for path in candidates:
        if path.exists():
            version = version_of(path)
            if version and version >= (3, 8):
                found.setdefault(version, str(path))
    return [found[version] for version in sorted(found)]


def version_of(python):
    command = [str(python), "-c", "import sys; print('%d %d' % sys.version_info[:2])"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    except OSError:
        return None
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None


def frame(kind, payload=b"", generation=0):
    return HEADER.pack(b"FT", 1, kind, generation, len(payload)) + payload


def pickle_body(*call):
    """The layout of a pickle payload, written independently of the shim."""
    buffers = []
    data = pickle.dumps(call, 5, buffer_callback=buffers.append)
    raws = [bytes(b.raw()) for b in buffers]
    out = struct.pack("<QQ", len(data), len(raws)) + struct.pack("<%dQ" % len(raws), *map(len, raws)) + data
    for raw in raws:
        out += bytes(-len(out) % 64) + raw
    return out


def unpickle_body(data):
    length, count = struct.unpack_from("<QQ", data)
    sizes = struct.unpack_from("<%dQ" % count, data, 16)
    at = 16 + 8 * count
    body, at = data[at : at + length], at + length
    buffers = []
    for size in sizes:
        at += -at % 64
        buffers.append(data[at : at + size])
        at += size
    assert at == len(data), (at, len(data))
    return pickle.loads(body, buffers=buffers)


class Stream:
    """The engine's end of a frame socket."""

    def __init__(self, sock):
        self.sock = sock
        self.data = b""
        sock.settimeout(WAIT_S)

    def read(self):
        """(kind, generation, payload), or None at the end."""
        while True:
            if len(self.data) >= 16:
                magic, version, kind, generation, length = HEADER.unpack_from(self.data)
                assert (magic, version) == (b"FT", 1), self.data[:64]
                if len(self.data) >= 16 + length:
                    payload, self.data = self.data[16 : 16 + length], self.data[16 + length :]
                    return kind, generation, payload
            try:
                more = self.sock.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            if not more:
                assert not self.data, self.data
                return None
            self.data += more

    def send(self, data, descriptors=()):
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        sent = self.sock.sendmsg([data], ancillary)
        if sent < len(data):  # sending nothing to one who crashed meanwhile is an error
            self.sock.sendall(data[sent:])


class Reply:
    """What a call came to."""

    def __init__(self, kinds, kind, payload, filed):
        self.kinds, self.kind, self.payload, self.filed = kinds, kind, payload, filed

    @property
    def value(self):
        assert self.kind == VALUE, self.error
        return decode(self.payload)

    @property
    def error(self):
        assert self.kind == ERROR, self.kind
        return decode(self.payload)

    @property
    def unpickled(self):
        assert self.kind == VALUE, self.error
        return unpickle_body(self.payload)


class Worker:
    def __init__(self, pid, sock, stdout, stderr, zygote):
        self.pid, self.stream, self.stdout, self.stderr, self.zygote = pid, Stream(sock), stdout, stderr, zygote
        self.generation = 0
        self.status = None

    def source(self, source, *args, function="f", kwargs=None, **header):
        header = dict({"kind": "source", "source": source, "filename": "<source>", "function": function}, **header)
        return self.call(header, encode((args, kwargs or {})))

    def pickled(self, function, *args, **header):
        header = dict({"kind": "pickled", "result": "pickle", "reuse": True}, **header)
        return self.call(header, pickle_body(function, args, {}))

    def initialize(self, function, *args, in_file=False, **header):
        """Up to its answer; None when the worker died."""
        header = dict({"initializer": True}, **header)
        self.send(INITIALIZE, header, pickle_body(function, args, {}), in_file)
        kinds = []
        while READY not in kinds:
            got = self.stream.read()
            if got is None:
                return None
            kind, generation, payload = got
            assert generation == 0, generation
            kinds.append(kind)
            if kind == ERROR:
                return Reply(kinds, kind, payload, False)
        return Reply(kinds, READY, b"", False)

    def start(self, header, body, in_file=False):
        header = dict({"result": "data", "inline": 65536, "capture": 1 << 20, "reuse": False}, **header)
        self.generation += 1
        self.send(CALL, header, body, in_file)

    def send(self, kind, header, body, in_file=False):
        descriptors = []
        if in_file:
            header["body_size"] = len(body)
            descriptors.append(os.memfd_create("body"))
            os.write(descriptors[0], body)
            body = b""
        head = marshal.dumps(header, 2)
        payload = struct.pack("<I", len(head)) + head + body
        self.stream.send(frame(kind, payload, self.generation), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def call(self, header, body, in_file=False):
        self.start(header, body, in_file)
        return self.finish()

    def finish(self, generation=None):
        """Reads up to the reply; None when the worker died."""
        generation = generation or self.generation
        kinds, filed, descriptor = [], False, None
        while True:
            got = self.stream.read()
            if got is None:
                return None
            kind, of, payload = got
            assert of == generation, (of, generation)
            kinds.append(kind)
            if kind == NEED:
                filed = True
                size = struct.unpack("<Q", payload)[0]
                descriptor = os.memfd_create("result")
                self.stream.send(frame(FILE, b"", generation), [descriptor])
            elif kind == FILED:
                kind, stated = struct.unpack("<BQ", payload)
                assert stated == size == os.fstat(descriptor).st_size
                data = os.pread(descriptor, size, 0)
                while len(data) < size:
                    data += os.pread(descriptor, size - len(data), len(data))
                os.close(descriptor)
                return Reply(kinds, kind, data, filed)
            elif kind in (VALUE, ERROR):
                return Reply(kinds, kind, payload, filed)

    def output(self, stream="stdout", until=b""):
        """What has been written so far, at least up to `until`."""
        descriptor, data = getattr(self, stream), b""
        deadline = time.monotonic() + (WAIT_S if until else 0)
        while until not in data or not until:
            ready, _, _ = select.select([descriptor], [], [], max(0, deadline - time.monotonic()))
            more = os.read(descriptor, 1 << 16) if ready else b""
            if not more:
                break
            data += more
        return data

    def wait(self):
        """The wait status of a worker that ends by itself. It is our child, whoever forked it."""
        deadline = time.monotonic() + WAIT_S
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
            elif time.monotonic() > deadline:
                raise AssertionError("worker %d did not end" % self.pid)
            else:
                time.sleep(0.002)
        return self.status

    def end(self):
        if self.status is None:
            os.killpg(self.pid, signal.SIGKILL)  # its children too, as a launcher would
            self.wait()
        self.stream.sock.close()
        os.close(self.stdout)
        os.close(self.stderr)


class Zygote:
    """A zygote below this process, as below a launcher."""

    def __init__(self, python, preload=(), env=None, text=None, **configure):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        engine, engine_far = socket.socketpair()
        self.launcher, launcher_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.launcher.settimeout(WAIT_S)
        for descriptor in map(int, os.listdir("/proc/self/fd")):  # whatever started us may have left some
            if descriptor > 2 and os.path.exists("/proc/self/fd/%d" % descriptor):
                os.set_inheritable(descriptor, False)
        errors_read, errors = os.pipe()
        environ = {"PATH": os.environ.get("PATH", ""), "FAIRTRIAL_WORKER_ID": "000000000000", **(env or {})}
        bootstrap = (SHIM_FILES / "bootstrap.py").read_text()
        # By way of high numbers: either end may have been given 3 or 4 itself.
        high = [fcntl.fcntl(far, fcntl.F_DUPFD_CLOEXEC, 50) for far in (engine_far, launcher_far)]
        self.spawned_at = time.perf_counter()
        self.pid = os.posix_spawn(
            python,
            [python, "-c", bootstrap],
            environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, errors, 2),
                (os.POSIX_SPAWN_DUP2, high[0], 3),
                (os.POSIX_SPAWN_DUP2, high[1], 4),
            ],
        )
        for descriptor in high + [errors]:
            os.close(descriptor)
        engine_far.close()
        launcher_far.close()
        self.spawned = self.pid
        self.reaped = {}
        self.stderr = errors_read
        self.number = 0
        self.workers = []
        self.stream = Stream(engine)
        self.ready = self.error = None
        try:
            self.stream.send(frame(SHIM, text or shim_text()))
            configure.update(preload=list(preload), signal=int(DUMP_SIGNAL))
            self.stream.send(frame(CONFIGURE, marshal.dumps(configure, 2)))
            answer = self.stream.read()
        except (BrokenPipeError, ConnectionResetError):
            answer = None
        self.ready_at = time.perf_counter()
        if answer and answer[0] == READY:
            self.ready = decode(answer[2])
            number, self.pid = struct.unpack("<Ii", self.launcher.recv(8))
            assert number == 0 and self.pid == self.ready["pid"]
            if self.pid != self.spawned:
                self.reap(self.spawned)
        elif answer and answer[0] == ERROR:
            self.error = decode(answer[2])

    def reap(self, pid):
        deadline = time.monotonic() + WAIT_S
        while pid not in self.reaped:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self.reaped[pid] = status
            elif time.monotonic() > deadline:
                raise AssertionError("zygote %d did not end" % pid)
            else:
                time.sleep(0.002)
        return self.reaped[pid]

    def errors(self):
        return os.read(self.stderr, 1 << 16).decode()

    def request(self, descriptors):
        self.number += 1
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        self.launcher.sendmsg([struct.pack("<IB", self.number, 0)], ancillary)  # 0: into no other namespace
        number, pid = struct.unpack("<Ii", self.launcher.recv(8))
        assert number == self.number
        return pid

    def worker(self):
        near, far = socket.socketpair()
        out, out_far = os.pipe()
        err, err_far = os.pipe()
        pid = self.request([far.fileno(), out_far, err_far])
        assert pid > 0, os.strerror(-pid)
        far.close()
        os.close(out_far)
        os.close(err_far)
        worker = Worker(pid, near, out, err, self)
        self.workers.append(worker)
        return worker

    def end(self):
        for worker in self.workers:
            worker.end()
        self.launcher.close()
        if self.pid not in self.reaped:
            os.kill(self.pid, signal.SIGKILL)
            self.reap(self.pid)
        self.stream.sock.close()
        os.close(self.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
