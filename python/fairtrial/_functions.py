"""Functions that go by value, pickled again only when something in them changed.

To pickle one takes a hundred times as long as to look whether it, and all it refers to, is what it was. Only what
cannot change in place is recognised; a function that refers to a list, say, is pickled each time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

_UNCHANGING = (type(None), bool, int, float, complex, str, bytes, ModuleType)
_MISSING = object()


def goes_by_value(function: Any) -> bool:
    """Whether a worker could not import the function by its name."""
    return type(function) is FunctionType and (function.__module__ == "__main__" or "<" in function.__qualname__)


def pickled(function: FunctionType, dumps: Callable[[Any], bytes]) -> bytes:
    """The function's pickle, as it is now."""
    known = _known.get(function)
    if known is not None and known.holds():
        return known.data
    data = dumps(function)
    if _has_identity(function):
        seen = _Seen(function)
        if seen.complete:
            _known[function] = _Known(data, seen)
    return data


_known: weakref.WeakKeyDictionary[FunctionType, _Known] = weakref.WeakKeyDictionary()


class _Known:
    """A pickle, and what it was made from."""

    def __init__(self, data: bytes, seen: _Seen) -> None:
        self.data = data
        self.parts = seen.parts
        self.names = seen.names

    def holds(self) -> bool:
        for function, *parts in self.parts:
            function = function()
            now = _parts(function) if function is not None else ()
            if len(now) != len(parts) or any(old is not new for old, new in zip(parts, now)):
                return False
        return all(names.get(name, _MISSING) is value for names, name, value in self.names)


class _Seen:
    """All that a function refers to, through other functions that go by value too."""

    def __init__(self, function: FunctionType) -> None:
        self.parts: list[tuple[Any, ...]] = []
        self.names: list[tuple[dict[str, Any], str, Any]] = []
        self._done: set[int] = set()
        self.complete = self._look(function)

    def _look(self, value: Any) -> bool:
        """Whether everything about it is something that cannot change unseen."""
        if isinstance(value, _UNCHANGING):
            return True
        if isinstance(value, (type, FunctionType, BuiltinFunctionType)) and not _is_local(value):
            return True  # goes by name
        if type(value) is tuple:
            return all(map(self._look, value))
        if type(value) is not FunctionType or not _has_identity(value):
            return False
        if id(value) in self._done:
            return True
        self._done.add(id(value))
        self.parts.append((weakref.ref(value), *_parts(value)))
        names = value.__globals__
        for name in set(_names(value.__code__)):
            found = names.get(name, _MISSING)
            self.names.append((names, name, found))
            if found is not _MISSING and not self._look(found):
                return False
        return all(map(self._look, (value.__defaults__, *(value.__kwdefaults__ or {}).values())))


def _parts(function: FunctionType) -> tuple[Any, ...]:
    named = (function.__kwdefaults__ or {}) | function.__annotations__
    return function.__code__, function.__defaults__, len(named), *named.values()


def _has_identity(function: FunctionType) -> bool:
    """Whether its code, its defaults, its annotations and its globals are all there is to it."""
    return not (function.__closure__ or function.__dict__)


def _is_local(thing: Any) -> bool:
    return thing.__module__ == "__main__" or "<" in thing.__qualname__


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
