# The zygote: preloads, then forks workers; runs no candidate code. Last of the parts of the shim, which the engine
# sends as one source.
import _socket
import errno as _errno
import faulthandler as _faulthandler
import gc as _gc
import os as _os
import sys as _sys
from marshal import loads as _load_configure
from os import _exit, close, getpid

_MOST_REQUEST = 1 << 16  # protocol/zygote.rs
_CUT = _socket.MSG_TRUNC | _socket.MSG_CTRUNC


def serve(engine, launcher):
    """A zygote's life: preload, say so, fork workers until the launcher hangs up."""
    kind, _, payload = _read_frame(engine)
    if kind != CONFIGURE:
        _exit(1)
    configure = _load_configure(payload)
    id_address = _find_worker_id()
    _os.chdir("/")
    host = "sys_path" in configure
    if host:
        _sys.path[:] = configure["sys_path"]
        _sys.argv[:] = configure["argv"]
    try:
        names, shared = configure.get("preload") or (), configure.get("preload_shared") or ()
        preloads = Preloads(names, (0, 1, 2, engine, launcher), shared)
    except PreloadFailed as failure:
        name, error = failure.args
        record = error_record(error, "setup_failed", 1 << 20)
        if not isinstance(error, (ImportError, SetupFailed)):
            record["message"] = "%s: %s" % (record["type"], record["message"])
        record["message"] = "cannot preload `%s`: %s" % (name, record["message"])
        _write_all(engine, _framed(ERROR, 0, encode(record)))
        _exit(1)
    threads = _count_threads()
    if threads > 1:
        _shed_threads()
    preloads.blank_descriptors()
    null = _os.open("/dev/null", _os.O_RDWR)
    _os.dup2(null, 0)
    close(null)
    _sigmask(_signal.SIG_BLOCK, {_signal.SIGINT})
    reset_signals()
    if configure.get("faulthandler"):
        _faulthandler.enable(2)
    enable_crash_reports()  # perhaps by PYTHONFAULTHANDLER, or a preload; the reset took their handlers away
    if _libc:
        _unbuffer_c_stdout()
    worker = Worker(configure.get("signal"), id_address, host, preloads, configure.get("authkey"))
    worker.take_logging(configure.get("logging"))
    _os.write(launcher, _NUMBER_AND_PID.pack(0, getpid()))
    version = "%d.%d.%d" % _sys.version_info[:3]
    ready = {"version": version, "threads": threads, "pid": getpid(), "paths": _places()}
    ready["closed_fds"] = preloads.report()
    _write_all(engine, _framed(READY, 0, encode(ready)))
    preloads.find_generators()
    forked = _fork_workers(_socket.socket(fileno=launcher), Forker())
    if forked is None:
        _exit(0)
    try:
        close(engine)
        close(launcher)
        plan, descriptors = forked
        worker.begin(*descriptors[:3])
        if plan:
            worker.confine(plan, descriptors[3:])
    except BaseException:
        _exit(_BROKEN)  # and not back into the zygote's own code
    worker.serve()


def _places():
    """Where this interpreter finds itself and its packages."""
    places = {_sys.prefix, _sys.base_prefix, _sys.exec_prefix, _sys.base_exec_prefix, *_sys.path}
    return sorted(place for place in places if type(place) is str and place.startswith("/"))


def _read_frame(descriptor):
    magic, version, kind, generation, length = HEADER.unpack(_read_all(descriptor, HEADER.size))
    if magic != b"FT" or version != VERSION:
        _exit(1)
    return kind, generation, _read_all(descriptor, length)


def _read_all(descriptor, size):
    data = b""
    while len(data) < size:
        chunk = _os.read(descriptor, size - len(data))
        if not chunk:
            _exit(1)
        data += chunk
    return data


def _write_all(descriptor, data):
    while data:
        data = data[_os.write(descriptor, data) :]


def _fork_workers(launcher, forker):
    """Serves requests. Returns None at the end, and in each worker what confines it and its descriptors."""
    _gc.collect()
    _gc.freeze()
    launcher.settimeout(0.05)
    while True:
        try:
            request, ancillary, flags, _ = launcher.recvmsg(_MOST_REQUEST, _DESCRIPTOR_SPACE, _CLOEXEC)
        except OSError as error:
            if error.errno not in (None, _errno.EAGAIN):
                return None
            # Idle: load what only pickled calls need, which costs 4 ms that no first call should wait for.
            _load_pickle()
            _gc.collect()
            _gc.freeze()
            launcher.settimeout(None)
            continue
        if not request:
            return None
        descriptors = _descriptors_in(ancillary)
        number = _U32.unpack(request[:4])[0]
        if flags & _CUT:
            pid = -_errno.EMSGSIZE  # half a plan confines nobody
        elif len(descriptors) < 3:
            pid = -_errno.EBADMSG
        else:
            pid = forker.fork(descriptors[request[4]] if request[4] else None)
        if pid == 0:
            launcher.detach()
            _become_worker(forker.parent)
            return request[5:], descriptors
        for descriptor in descriptors:
            close(descriptor)
        launcher.send(_NUMBER_AND_PID.pack(number, pid))
