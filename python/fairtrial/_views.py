"""Arrays in a host without numpy: views with a format and a shape, made through the few names that the codec uses."""

from __future__ import annotations

from typing import Any

from ._shim import codec as _codec

# Those of numpy's types that a view can have.
_FORMATS = {
    "|b1": "?",
    "|i1": "b",
    "|u1": "B",
    "<i2": "h",
    "<u2": "H",
    "<i4": "i",
    "<u4": "I",
    "<i8": "q",
    "<u8": "Q",
    "<f4": "f",
    "<f8": "d",
}


def numpy() -> Any:
    """numpy, or what stands in for it."""
    try:
        import numpy
    except ImportError:
        return _Views
    return numpy


class _Type:
    def __init__(self, described: Any) -> None:
        if not isinstance(described, str) or (described not in _FORMATS and described[1:2] not in ("S", "U")):
            raise _codec.Malformed(f"it holds an array of {described!r}, for which numpy is needed here")
        self.format: Any = _FORMATS.get(described, "B")
        self.kind, self.byteorder = described[1], described[0]
        self.itemsize = int(described[2:]) * (4 if self.kind == "U" else 1)
        self.hasobject = False


class _Views:
    """What the codec wants of numpy."""

    dtype = _Type
    bytes_ = bytes
    str_ = str

    @staticmethod
    def ndarray(shape: tuple[int, ...], dtype: _Type, data: Any, _at: int = 0, _: None = None, order: str = "C") -> Any:
        view: Any = memoryview(data)
        if dtype.kind in "SU" or (order == "F" and len(shape) > 1) or 0 in shape:
            raise _codec.Malformed("it holds an array that is no plain view, for which numpy is needed here")
        view = view.cast(dtype.format)
        return view.cast("B").cast(dtype.format, shape) if len(shape) != 1 else view
