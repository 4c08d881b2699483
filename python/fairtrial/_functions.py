"""Functions that go by value, pickled again only when something in them changed.

To pickle one takes a hundred times as long as to look whether it, and all it refers to, is what it was. Only what
cannot change in place is recognised; a function that refers to a list, say, is pickled each time.
"""

from __future__ import annotations

import marshal
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator
from importlib.util import MAGIC_NUMBER
from operator import is_
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from ._interrupts import is_interrupt

_UNCHANGING = frozenset((type(None), bool, int, float, complex, str, bytes))
_MISSING = object()
_NO_MODULES: set[str] = set()
_PARTS_MARK = b"\0"  # no pickle begins so
_SLOTS = ("__name__", "__qualname__", "__doc__", "__defaults__", "__kwdefaults__", "__annotations__")
_MAX_KEPT_PICKLE = 64 << 10  # and no worker keeps a larger one


def goes_by_value(function: Any) -> bool:
    """Whether a worker could not import the function by its name."""
    return type(function) is FunctionType and (function.__module__ == "__main__" or "<" in function.__qualname__)


def by_value_modules() -> set[str]:
    """Modules whose contents go by value because `cloudpickle` was told so."""
    registered = getattr(sys.modules.get("cloudpickle"), "list_registry_pickle_by_value", None)
    return registered() if registered is not None else _NO_MODULES


def pickled(function: FunctionType, dumps: Callable[[Any], bytes]) -> bytes:
    """The function's pickle, as it is now."""
    if by_value_modules():
        return dumps(function)  # whatever it finds there may change
    known = _known.get(function)
    if known is not None and known.holds():
        return known.data
    seen = _Seen(function) if _has_identity(function) else None
    if seen is None or not seen.complete:
        return dumps(function)
    data = _in_parts(seen) or dumps(function)
    if len(data) <= _MAX_KEPT_PICKLE:
        _known[function] = _Known(data, seen)
    return data


def _in_parts(seen: _Seen) -> bytes | None:
    """A function of `__main__` as its parts, which a worker puts together without `cloudpickle`: to import that takes
    as long as an interpreter's start. None if some part is more than a constant or a name."""
    main = sys.modules.get("__main__")
    functions = [function() for function, *_ in seen.parts]
    if getattr(main, "__package__", None) or any(
        function is None or function.__globals__ is not vars(main) for function in functions
    ):
        return None
    places = {id(function): place for place, function in enumerate(functions)}
    names: dict[str, tuple[str, Any]] = {}
    for _, name, value in seen.names:
        if name == "__name__":
            continue  # a worker's is the same
        if type(value) is weakref.ref:
            value = value()
        if id(value) in places:
            names[name] = ("function", places[id(value)])
        elif type(value) is ModuleType:
            if hasattr(value, "__path__"):
                return None  # of a package the worker needs those of its modules that the function uses
            names[name] = ("module", value.__name__)
        elif value is not _MISSING:
            names[name] = ("value", value)
    parts = [
        (marshal.dumps(function.__code__), {slot: getattr(function, slot) for slot in _SLOTS}) for function in functions
    ]
    try:
        data = pickle.dumps((parts, names), 5)
    except Exception as error:
        if is_interrupt(error):
            raise
        return None
    return None if b"__main__" in data else _PARTS_MARK + MAGIC_NUMBER + data


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
            now = _parts(function) if function is not None and not function.__dict__ else ()
            if len(now) != len(parts) or not all(map(is_, parts, now)):
                return False
        for names, name, old in self.names:
            if (old() if type(old) is weakref.ref else old) is not names.get(name, _MISSING):
                return False
        return True


class _Seen:
    """All that a function refers to, through other functions that go by value too."""

    def __init__(self, function: FunctionType) -> None:
        self.parts: list[tuple[Any, ...]] = []
        self.names: list[tuple[dict[str, Any], str, Any]] = []
        self._done: set[int] = set()
        self.complete = self._look(function)

    def _look(self, value: Any) -> bool:
        """Whether everything about it is something that cannot change unseen."""
        if type(value) in _UNCHANGING or _goes_by_name(value):
            return True
        if type(value) is tuple:
            return all(map(self._look, value))
        if type(value) is not FunctionType or not _has_identity(value):
            return False
        if value.__globals__ is not vars(sys.modules.get(value.__module__, object)):
            return False  # of a namespace that may go, which would be held
        if id(value) in self._done:
            return True
        self._done.add(id(value))
        self.parts.append((weakref.ref(value), *_parts(value)))
        names = value.__globals__
        for name in set(_names(value.__code__)):
            found = names.get(name, _MISSING)
            # Functions weakly: one that calls itself would otherwise never go.
            self.names.append((names, name, weakref.ref(found) if type(found) is FunctionType else found))
            if found is not _MISSING and not self._look(found):
                return False
        return all(map(self._look, (value.__defaults__, *(value.__kwdefaults__ or {}).values())))


def _parts(function: FunctionType) -> tuple[Any, ...]:
    keywords, annotations = function.__kwdefaults__ or {}, function.__annotations__
    named = (*keywords, None, *keywords.values(), None, *annotations, None, *annotations.values())
    names = function.__name__, function.__qualname__, function.__module__, function.__doc__
    return function.__code__, function.__defaults__, *names, *named


def _has_identity(function: FunctionType) -> bool:
    """Whether its code, its defaults, its annotations and its globals are all there is to it."""
    return not (function.__closure__ or function.__dict__)


def _goes_by_name(thing: Any) -> bool:
    if type(thing) is ModuleType:
        return sys.modules.get(thing.__name__) is thing
    if type(thing) is BuiltinFunctionType:
        return type(thing.__self__) in (type(None), ModuleType)  # and no method of some object
    if isinstance(thing, (type, FunctionType)) and thing.__module__ != "__main__":
        found: Any = sys.modules.get(thing.__module__)
        for part in thing.__qualname__.split("."):
            found = getattr(found, part, None)
        return found is thing  # and no wrapper that only bears the name
    return False


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
