# What a call finds on arrival and what is put back behind it: cwd, environment, `sys.path`, modules, limits, signals,
# streams. Runs in the worker; the shim decides when. Everything it calls is bound before any candidate runs.
import _signal
import faulthandler as _faulthandler
import io as _io
import os as _os
import sys as _sys
from fcntl import F_DUPFD_CLOEXEC as _F_DUPFD_CLOEXEC
from fcntl import fcntl as _fcntl
from os import chdir as _chdir
from os import close as _close
from os import dup2 as _dup2
from os import fchdir as _fchdir
from os import getcwd as _getcwd
from os import listdir as _listdir
from os import open as _open
from os import pipe as _pipe
from os import putenv as _putenv
from os import stat as _stat
from os import umask as _umask
from os import unsetenv as _unsetenv
from os.path import abspath as _abspath
from os.path import isfile as _isfile
from os.path import realpath as _realpath
from time import process_time as _process_time

_resource_was_loaded = "resource" in _sys.modules
import resource as _resource  # noqa: E402

if not _resource_was_loaded:
    del _sys.modules["resource"]  # so that its presence tells whether a candidate may have touched a limit

_touched = []  # not empty: handlers, masks or timers may have been changed


def _watch(function):
    def call(*args):
        _touched.append(True)
        return function(*args)

    for name in ("__module__", "__name__", "__qualname__", "__doc__", "__text_signature__"):
        setattr(call, name, getattr(function, name, None))
    return call


_getsignal = _signal.getsignal
_setsignal = _signal.signal
_setitimer = _signal.setitimer
_sigmask = _signal.pthread_sigmask
_SIG_SETMASK = _signal.SIG_SETMASK
_SIG_DFL, _SIG_IGN = _signal.SIG_DFL, _signal.SIG_IGN
_int_handler = _signal.default_int_handler
_SIGNALS = sorted(set(int(n) for n in _signal.valid_signals()) - {9, 19}) if hasattr(_signal, "valid_signals") else []
_LIMITS = sorted({getattr(_resource, name) for name in dir(_resource) if name.startswith("RLIMIT_")})
_getrlimit, _setrlimit = _resource.getrlimit, _resource.setrlimit
_INFINITY = _resource.RLIM_INFINITY
_RLIMIT_CPU = _resource.RLIMIT_CPU
_set_wakeup_fd = _signal.set_wakeup_fd
_settrace, _setprofile = _sys.settrace, _sys.setprofile
_getrecursionlimit, _setrecursionlimit = _sys.getrecursionlimit, _sys.setrecursionlimit
_FileIO, _BufferedReader, _TextIOWrapper = _io.FileIO, _io.BufferedReader, _io.TextIOWrapper
_modules = _sys.modules
# Asking the kernel after each call costs more than most calls, so who changes something leaves a note.
_signals_are_watched = "signal" not in _modules  # else somebody may have the functions themselves
for _name in ("signal", "siginterrupt", "set_wakeup_fd", "setitimer", "alarm", "pthread_sigmask"):
    setattr(_signal, _name, _watch(getattr(_signal, _name)))
_sys_names, _os_names = vars(_sys), vars(_os)  # of which a candidate may delete any
_O_HERE = _os.O_PATH | _os.O_DIRECTORY | _os.O_CLOEXEC
_HIGH = 200  # candidates count descriptors from 3; the shim's own are out of their way


class SetupFailed(Exception):
    """The terms of a call could not be met."""


def raise_descriptor(descriptor):
    """A duplicate with a high number, or the next free one where the limit is low."""
    try:
        return _fcntl(descriptor, _F_DUPFD_CLOEXEC, _HIGH)
    except OSError:
        return _fcntl(descriptor, _F_DUPFD_CLOEXEC, 3)


def reset_signals():
    """The handlers that every call starts from (EX-35)."""
    for number in _SIGNALS:
        wanted = _int_handler if number == 2 else _SIG_IGN if number == 13 else _SIG_DFL
        if _getsignal(number) is not wanted and _getsignal(number) != wanted:
            try:
                _setsignal(number, wanted)
            except (OSError, ValueError):
                pass  # the C library keeps a few real-time signals to itself


def enable_crash_reports():
    """Where they are on: a crash writes its stack to descriptor 2, as that is by then (PY-32)."""
    if _faulthandler.is_enabled():
        _faulthandler.disable()
        _faulthandler.enable(2)


def open_streams():
    """Fresh `sys.stdin`, `stdout` and `stderr` over descriptors 0 to 2.

    Unbuffered, as under `python -u`: what was printed before a crash, a kill or `os._exit` has been seen (EX-77), part
    of a line too. A million prints take 2.1 s so, 2.2 s line-buffered and 0.5 s block-buffered, which loses them.
    Made while 1 and 2 are pipes, as they will be in a worker: a stream asks once whether it can seek.
    """
    streams = []
    kept = [raise_descriptor(number) for number in (1, 2)]
    pipe = _pipe()
    for number in (1, 2):
        _dup2(pipe[1], number)
    for number, mode in ((0, "r"), (1, "w"), (2, "w")):
        raw = _FileIO(number, mode, closefd=False)
        buffer = _BufferedReader(raw) if mode == "r" else raw
        errors = "backslashreplace" if number == 2 else _stream_errors
        stream = _TextIOWrapper(buffer, _stream_encoding, errors, write_through=mode == "w")
        stream.mode = mode
        streams.append(stream)
    _sys.stdin, _sys.stdout, _sys.stderr = streams
    _sys.__stdin__, _sys.__stdout__, _sys.__stderr__ = streams
    for number, descriptor in zip((1, 2), kept):
        _dup2(descriptor, number)
        _close(descriptor)
    _close(pipe[0])
    _close(pipe[1])


_stream_encoding = getattr(_sys.__stdout__, "encoding", None) or "utf-8"
_stream_errors = getattr(_sys.__stdout__, "errors", None) or "strict"


class Terms:
    """A worker's surroundings as a call may set them, and the base they return to."""

    def __init__(self, startup):
        self.startup = startup  # modules that the interpreter itself loaded; no path shadows those
        self.environ = _os.environ
        self.data = self.environ._data
        self.path_list = _sys.path
        self.argv_list = _sys.argv
        self.kept = None  # duplicates of descriptors 0 to 2, once the worker is reused
        self.home = None  # a descriptor of the base's cwd, if most calls stay there
        self.limited = []  # rlimits that hold beside the base's
        self.asked_path = None
        self.entries = ()
        self.evicted = {}
        self.take_base()

    def take_base(self):
        """Makes the present state the one that is restored."""
        path, argv = _sys_names.get("path"), _sys_names.get("argv")
        self.path_list = path if type(path) is list else self.path_list
        self.argv_list = argv if type(argv) is list else self.argv_list
        self.base_path = self.path = list(self.path_list)
        self.base_env, self.env = dict(self.data), dict(self.data)
        self.env_asked, self.env_changes = None, {}
        self.base_cwd = self.cwd = _getcwd_or_none()

    def prepare_reuse(self, stays):
        """What only a worker that serves several calls must remember. `stays`: most calls have no cwd of their own."""
        self.kept = [raise_descriptor(number) for number in (0, 1, 2)]
        self.home = _open_here() if stays else None
        self.argv = list(self.argv_list)
        self.umask = _umask(0o077)
        _umask(self.umask)
        self.handlers = list(map(_getsignal, _SIGNALS))
        self.streams = (_sys.stdin, _sys.stdout, _sys.stderr)
        self.limits = [_getrlimit(which)[0] for which in _LIMITS]
        self.recursion_limit = _getrecursionlimit()

    def meet(self, header):
        """Brings about what the call asks for. What the call before asked for too is already so."""
        cwd, env, path, rlimits = header.get("cwd"), header.get("env"), header.get("path"), header.get("rlimits")
        if env != self.env_asked:
            self._set_env(env or {})
            self.env_asked = env
        if (rlimits or []) != self.limited:
            if self.limited:
                self._restore_limits()
            self._set_limits(rlimits or [], header.get("reuse"))
        if not cwd:
            self.leave()
        elif cwd != self.cwd:
            self._enter(cwd)
        if path != self.asked_path or (path and self._path_is_stale()):
            self._forget_path()
            self.asked_path = path
            if path:
                self._put_first(path, header.get("reuse"))

    def settle(self):
        """Puts back what the call changed. What holds already costs a comparison."""
        _settrace(None)
        _setprofile(None)
        if self.entries:
            self._forget_imports()
        if _sys_names.get("path") is not self.path_list or self.path_list != self.path:
            self.path_list[:] = self.path
            _sys.path = self.path_list
        if _sys_names.get("argv") is not self.argv_list or self.argv_list != self.argv:
            self.argv_list[:] = self.argv
            _sys.argv = self.argv_list
        if not self._environ_holds():
            _os.environ = self.environ
            self.environ._data = self.data
            self._set_environ(self.env)
        if self.home is not None and self.cwd is self.base_cwd:
            _fchdir(self.home)  # half the price of asking where we are
        elif _getcwd_or_none() != self.cwd:
            _chdir(self.cwd)
        _umask(self.umask)
        if _touched or not _signals_are_watched:
            self._restore_signals()
        stdin, stdout, stderr = self.kept
        _dup2(stdin, 0)
        _dup2(stdout, 1)
        _dup2(stderr, 2)
        if not self._streams_hold():
            self._restore_streams()
        if _getrecursionlimit() != self.recursion_limit:
            _setrecursionlimit(self.recursion_limit)
        if "resource" in _modules or any(which == _RLIMIT_CPU for which, _ in self.limited):
            self._restore_limits()

    def leave(self):
        """Ends the stay in a directory that the engine is about to remove."""
        if self.cwd != self.base_cwd and self.base_cwd is not None:
            _chdir(self.base_cwd)
            self.cwd = self.base_cwd

    def _set_env(self, changes):
        """From what the call before had: what both have costs a comparison."""
        wanted = {_os_bytes(name): value if value is None else _os_bytes(value) for name, value in changes.items()}
        self.env_asked = None  # should one be refused, the next call takes back what was set
        self.env_changes = {**wanted, **self.env_changes}
        for name in self.env_changes:
            if name not in wanted:
                self._set_variable(name, self.base_env.get(name))
        for name, value in wanted.items():
            self._set_variable(name, value)
        self.env_changes = wanted

    def _set_variable(self, name, value):
        if self.env.get(name) == value:
            return
        if value is None:
            _unsetenv(name)
            del self.data[name], self.env[name]
        else:
            _putenv(name, value)
            self.data[name] = self.env[name] = value

    def _set_environ(self, wanted):
        data = self.data
        for name in [name for name in data if name not in wanted]:
            _unsetenv(name)
            del data[name]
        for name, value in wanted.items():
            if data.get(name) != value:
                _putenv(name, value)
                data[name] = value

    def _enter(self, cwd):
        try:
            _chdir(cwd)
        except (OSError, ValueError) as error:
            raise SetupFailed("cannot enter cwd `%s`: %s" % (cwd, getattr(error, "strerror", None) or error)) from None
        self.cwd = _getcwd_or_none()

    def _set_limits(self, rlimits, reuse):
        for which, value in rlimits:
            if which == _RLIMIT_CPU:
                value += int(_process_time())  # a process's lifetime counts, a call gets its own
            hard = _getrlimit(which)[1]
            soft = value if hard == _INFINITY else min(value, hard)
            try:
                _setrlimit(which, (soft, hard if reuse else soft))
            except (OSError, ValueError) as error:
                raise SetupFailed("cannot set rlimit %s to %s: %s" % (which, value, error)) from None
        self.limited = rlimits

    def _restore_signals(self):
        _touched.clear()
        _setitimer(1, 0)  # 0 was disarmed as soon as the candidate returned
        _setitimer(2, 0)
        _sigmask(_SIG_SETMASK, ())
        _set_wakeup_fd(-1)
        if list(map(_getsignal, _SIGNALS)) != self.handlers:
            for number, wanted in zip(_SIGNALS, self.handlers):
                if _getsignal(number) is not wanted:
                    _setsignal(number, wanted)
            enable_crash_reports()  # whose handlers the lines above may have taken away

    def _restore_limits(self):
        self.limited = []
        for which, wanted in zip(_LIMITS, self.limits):
            soft, hard = _getrlimit(which)
            if soft != wanted:
                if hard != _INFINITY and (wanted == _INFINITY or wanted > hard):
                    wanted = hard  # a lowered hard limit stays (documented)
                _setrlimit(which, (wanted, hard))

    def _put_first(self, path, reuse):
        entries = []
        for entry in path:
            entry = _abspath(entry)
            if entry not in entries and (not entries or _realpath(entry) not in entries):
                entries.append(entry)
        self.entries, self.changed_at = entries, _changed_at(entries)
        self.path = entries + [entry for entry in self.base_path if entry not in entries]
        self.path_list[:] = self.path
        self._forget_finders(entries)
        shadowed = _shadowed(entries, self.startup)
        # A look at every module is a fault for every page that they are on.
        if shadowed:
            self.evicted = {name: module for name, module in _modules.items() if name.partition(".")[0] in shadowed}
            for name in self.evicted:
                del _modules[name]
        if reuse:
            self.known = set(_modules)

    def _path_is_stale(self):
        """Whether the entries must be looked at again. What an importer remembers of them is dropped in any case."""
        self._forget_finders(self.entries)
        return self.changed_at != _changed_at(self.entries) or any(
            not entry.startswith("/") for entry in self.asked_path
        )

    def _forget_finders(self, entries):
        for entry in entries:
            _sys.path_importer_cache.pop(entry, None)

    def _forget_imports(self):
        """Removes what a call imported from the entries; what they shadow stays away."""
        if _modules.keys() == self.known:
            return
        below = tuple(entry.rstrip("/") + "/" for entry in self.entries)
        for name in [name for name in list(_modules) if name not in self.known]:
            if _lives_below(_modules[name], below):
                del _modules[name]
        self.known = set(_modules)
        self._forget_finders([entry for entry in _sys.path_importer_cache if (entry + "/").startswith(below)])

    def _forget_path(self):
        """Returns to the base's path, and what the entries had shadowed to the modules."""
        _modules.update(self.evicted)
        self._forget_finders(self.entries)
        self.path = self.base_path
        self.path_list[:] = self.path
        self.asked_path, self.entries, self.evicted = None, (), {}

    def _environ_holds(self):
        return (
            _os_names.get("environ") is self.environ
            and self.environ.__dict__.get("_data") is self.data
            and self.data == self.env
        )

    def _streams_hold(self):
        stdin, stdout, stderr = self.streams
        return (
            _sys_names.get("stdin") is stdin
            and _sys_names.get("stdout") is stdout
            and _sys_names.get("stderr") is stderr
            and self._streams_work()
        )

    def _streams_work(self):
        stdin, stdout, stderr = self.streams
        try:
            return not (stdin.closed or stdout.closed or stderr.closed)
        except ValueError:  # detached
            return False

    def _restore_streams(self):
        _sys.stdin, _sys.stdout, _sys.stderr = self.streams
        if not self._streams_work():
            open_streams()
            self.streams = (_sys.stdin, _sys.stdout, _sys.stderr)


def _getcwd_or_none():
    try:
        return _getcwd()
    except OSError:
        return None  # removed under us


def _open_here():
    try:
        descriptor = _open(".", _O_HERE)
    except OSError:
        return None  # removed under us, or not ours to enter again
    high = raise_descriptor(descriptor)
    _close(descriptor)
    return high


def _os_bytes(text):
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


def _changed_at(entries):
    """When the directories were last changed, by what the system tells; None where it does not."""
    times = []
    for entry in entries:
        try:
            times.append(_stat(entry).st_mtime_ns)
        except OSError:
            times.append(None)
    return times


def _shadowed(entries, startup):
    """Top-level modules, loaded already, that an import would now find in `entries`."""
    shadowed = set()
    for entry in entries:
        try:
            names = _listdir(entry)
        except OSError:
            continue  # missing, or a zip: imports say what they find there
        for name in names:
            stem, _, rest = name.partition(".")
            if stem not in _modules or stem in startup:
                continue
            if rest in ("py", "pyc") or rest.endswith("so"):
                shadowed.add(stem)
            elif name == stem and _isfile(entry + "/" + name + "/__init__.py"):
                shadowed.add(name)  # a directory without it is no rival of a package found later
    return shadowed


def _lives_below(module, below):
    try:
        names = vars(module)
        file = names.get("__file__")
        if file is None:
            file = next(iter(names.get("__path__", ())), None)
            return isinstance(file, str) and (file + "/").startswith(below)
        return isinstance(file, str) and file.startswith(below)
    except BaseException:
        return False  # a stranger put among the modules: left, as other modules are
