"""Values as they arrive: small ones copied, large ones moved page by page into a private mapping that Python owns; also
copied if there are very many of them.
"""

from __future__ import annotations

import pickle
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap
from struct import Struct
from typing import Any
from weakref import ref

from . import _engine, _views
from ._interrupts import keep
from ._shim import codec as _codec

_PICKLE_HEAD = Struct("<QQ")
_BUFFER_ALIGNMENT = 64
_MAP_NORESERVE = 0x4000  # nothing is written to the pages that were there first

_MAX_MAPPINGS = 8192  # the kernel allows a process 65,530 in all
_mappings: set[ref[mmap]] = set()  # no `WeakSet`, whose steps are Python's: an interrupt there would be lost


def take(raw: _engine.Outcome, kept: list[Any]) -> None:
    """Puts format and encoded value into `kept`, if they are not there. The engine has the value until then: an
    interrupt loses nothing."""
    form = raw.value_form()
    if form is None:
        return
    format, size, inline = form
    kept[:] = [format]
    if inline or len(_mappings) >= _MAX_MAPPINGS:
        keep(kept, raw.take_value)
    else:
        _move_pages(raw, size, kept)


def decode(format: str, body: bytes | memoryview) -> Any:
    """The value; of a pickle its maker is trusted."""
    return load_pickle(body) if format == "pickle" else _codec.decode(body, _views.numpy)


def _move_pages(raw: _engine.Outcome, size: int, kept: list[Any]) -> None:
    import ctypes  # only large values need it

    # Python's own mapping of a file would keep a descriptor for each value; so the pages move under an anonymous one.
    pages = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS | _MAP_NORESERVE, prot=PROT_READ | PROT_WRITE)
    _mappings.add(ref(pages, _mappings.discard))
    kept.append(memoryview(pages))
    first = ctypes.c_char.from_buffer(pages)
    try:
        raw.move_value(ctypes.addressof(first))
    except OSError:
        kept.clear()  # nothing was moved, and the value is gone
        raise


def pickle_body(data: bytes) -> bytes:
    """A pickle without buffers, encoded."""
    return _PICKLE_HEAD.pack(len(data), 0) + data


def load_pickle(body: bytes | memoryview) -> Any:
    """What was pickled; arrays are views on `body` where that can be written to."""
    length, count = _PICKLE_HEAD.unpack_from(body)
    view = memoryview(body)
    if not count:
        return pickle.loads(view[16 : 16 + length])
    if view.readonly:
        view = memoryview(bytearray(view))
    sizes = Struct(f"<{count}Q").unpack_from(view, 16)
    at = 16 + 8 * count
    data = view[at : at + length]
    at += length
    buffers = []
    for size in sizes:
        at += -at % _BUFFER_ALIGNMENT
        buffers.append(view[at : at + size])
        at += size
    return pickle.loads(data, buffers=buffers)
