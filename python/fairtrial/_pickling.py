"""The host's own functions and arguments as pickles, laid out as the worker protocol wants them.

What lives in `__main__`, and what has no name, goes by value: workers do not have the host's `__main__`.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from struct import Struct
from typing import Any

from . import _engine, _functions
from ._interrupts import is_interrupt

_HEAD = Struct("<QQ")
_SIZE = Struct("<Q")
_BY_VALUE = 1 << 63
_BUFFER_ALIGNMENT = 64
_FILE_BYTES = 16 << 20  # more than this is written to a file at once: a descriptor for each call would be too many
_IOV_MAX = 1024
_NONE: list[memoryview] = []
_dumps = pickle.dumps


def submit(engine: _engine.Backend, terms: _engine.Terms, work: Any, tap: _engine.Tap | None) -> _engine.Pending:
    """Pickles `(function, args, kwargs)` and submits it: what changes later is not seen."""
    function = None
    if _functions.goes_by_value(work[0]):
        function = _functions.pickled(work[0], _dumps_by_value)
        work = work[1:]
    data, buffers = dumps(work)
    if not buffers and len(data) <= _FILE_BYTES:
        return engine.submit_pickle(terms, data, tap, function)
    chunks = _chunks(data, buffers, function)
    size = sum(len(chunk) for chunk in chunks)
    if size <= _FILE_BYTES:
        return engine.submit(terms, b"".join(chunks), tap)
    file = engine.argument_file(size)
    _write(file.fileno(), chunks)
    return engine.submit_file(terms, file, tap)


def body(work: Any) -> bytes:
    """The same in one piece."""
    return b"".join(_chunks(*dumps(work), None))


def function(thing: Any) -> bytes:
    """A callable by itself, in one piece, for calls whose arguments are pickled elsewhere."""
    if _functions.goes_by_value(thing):
        return _functions.pickled(thing, _dumps_by_value)
    if not _functions.by_value_modules():
        try:
            data = _dumps(thing, 5)
            if b"__main__" not in data:
                return data
        except Exception as error:
            if is_interrupt(error):
                raise
            # As in `dumps`.
    return _dumps_by_value(thing)


def dumps(thing: Any) -> tuple[bytes, list[memoryview]]:
    """A pickle and its buffers."""
    buffers: list[pickle.PickleBuffer] = []
    if not _functions.by_value_modules():
        try:
            data = _dumps(thing, 5, buffer_callback=buffers.append)
            if b"__main__" not in data:
                return data, [buffer.raw() for buffer in buffers] if buffers else _NONE
        except Exception as error:
            if is_interrupt(error):
                raise
            # A lambda, say: the other pickler, which takes ten times as long, knows how or says why not.
    buffers.clear()
    data = _dumps_by_value(thing, buffers.append)
    return data, [buffer.raw() for buffer in buffers]


def _dumps_by_value(thing: Any, buffer_callback: Any = None) -> bytes:
    import cloudpickle  # type: ignore[import-untyped]

    file = io.BytesIO()
    pickler = cloudpickle.Pickler(file, 5, buffer_callback=buffer_callback)
    # Functions of `__main__` share its globals in the worker too, with each other and with an initializer.
    main = sys.modules.get("__main__")
    pickler.globals_ref[id(vars(main))] = _WorkerMain()
    pickler.dump(thing)
    return file.getvalue()


class _MainModule:
    """Unpickled, the worker's own `__main__`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("__main__",)


class _WorkerMain:
    """Unpickled, its globals."""

    def __reduce__(self) -> tuple[Any, ...]:
        package = getattr(sys.modules.get("__main__"), "__package__", None)
        if package:  # run by `python -m`: its functions import relative to it
            names = "__import__('__main__').__dict__"
            return eval, (f"(lambda names: names.update(__package__={package!r}) or names)({names})",)
        return vars, (_MainModule(),)


def _chunks(data: bytes, buffers: list[memoryview], function: bytes | None) -> list[bytes | memoryview]:
    sizes = [buffer.nbytes for buffer in buffers]
    chunks: list[bytes | memoryview] = [_HEAD.pack(len(data), len(sizes) | (_BY_VALUE if function else 0))]
    if function:
        chunks += (_SIZE.pack(len(function)), function)
    chunks += (Struct(f"<{len(sizes)}Q").pack(*sizes), data)
    at = sum(map(len, chunks))
    for buffer in buffers:
        pad = -at % _BUFFER_ALIGNMENT
        chunks += (bytes(pad), buffer)
        at += pad + buffer.nbytes
    return chunks


def _write(descriptor: int, chunks: list[bytes | memoryview]) -> None:
    views = [memoryview(chunk) for chunk in chunks if len(chunk)]
    first = 0
    while first < len(views):
        written = os.writev(descriptor, views[first : first + _IOV_MAX])
        while written:
            size = views[first].nbytes
            if written < size:
                views[first] = views[first][written:]
                break
            written -= size
            first += 1
