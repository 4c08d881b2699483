"""What a caller binds to a study's ids, as the engine reads it: functions pickled, known by their file or version."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import _engine, _pickling
from ._interrupts import is_interrupt
from ._shim import codec as _codec
from .executor import of_host


class Binder:
    """Reads bindings, and remembers those whose changes cannot be seen."""

    def __init__(self, calls_as_dre: bool) -> None:
        self.calls_as_dre = calls_as_dre
        self.unknown: list[str] = []

    def binding(self, what: str, given: Any) -> dict[str, Any]:
        """A callable, a mapping with one as `call` and options beside it, or what a study file would say."""
        if isinstance(given, str):
            return {"function": None, "given": _data(what, given)}
        options = _named(what, given) if isinstance(given, Mapping) else {}
        called = options.pop("call", None) if isinstance(given, Mapping) else given
        if called is None:
            return {"function": None, "given": _data(what, options)}
        as_dre = options.get("contract", "dre" if self.calls_as_dre else "run") == "dre"
        _check_callable(what, called, as_dre)
        name, content = _identity(called)
        version = options.get("version", getattr(called, "version", None))
        if isinstance(version, (str, int)):
            options["version"] = str(version)
        if options.get("version") is None and content is None:
            self.unknown.append(what)
        function = {
            "name": name,
            "content_sha256": None if options.get("version") is not None else content,
            "pickle": _pickled(what, name, functools.partial(_dre_caller(), called) if as_dre else called),
            "python": {
                "python": sys.executable,
                "python_path": [],
                "preload": ["cloudpickle"],  # a fresh process would import it each time
                "preload_shared": [],
                "isolation": "fresh",  # the binding's options say otherwise
                "result": "data",
                "host": of_host(),
            },
        }
        return {"function": function, "given": _data(what, options)}

    def packet(self, problem_id: str, given: Any) -> dict[str, Any]:
        """A problem: a mapping as in a study file, or a dataclass with such fields; its evaluator may be a callable."""
        what = f"problem `{problem_id}`"
        if dataclasses.is_dataclass(given) and not isinstance(given, type):
            given = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
        if not isinstance(given, Mapping):
            raise TypeError(f"{what} must be a mapping (dict) with `payload`, `brief`, …, not {type(given).__name__}")
        packet = _named(what, given)
        own_id = packet.pop("problem_id", problem_id)
        if own_id != problem_id:
            raise ValueError(f"{what} says that its `problem_id` is {own_id!r}")
        evaluator = packet.pop("evaluator", None)
        if evaluator is not None:
            evaluator = self.binding(f"evaluator of {what}", evaluator)
        return {"given": _data(what, packet), "evaluator": evaluator}


def _named(what: str, given: Mapping[Any, Any]) -> dict[str, Any]:
    for key in given:
        if not isinstance(key, str):
            raise TypeError(f"{what} must have texts for keys, and has {key!r}")
    return dict(given)


def _data(what: str, value: Any) -> bytes:
    try:
        return b"".join(_codec.encode(value))
    except _codec.Unencodable as error:
        place = str(error).partition(" (not plain data")[0]
        raise TypeError(f"{what} must be plain data: {place}") from None


def _check_callable(what: str, called: Any, as_dre: bool) -> None:
    methods = ("run", "evaluate") if as_dre else ()
    if not (callable(called) or any(callable(getattr(called, name, None)) for name in methods)):
        raise TypeError(f"{what} must be a callable, or a binding as in a study file, not {type(called).__name__}")


def _pickled(what: str, name: str, function: Any) -> bytes:
    try:
        return _pickling.function(function)
    except BaseException as error:
        if is_interrupt(error) or not isinstance(error, Exception):
            raise
        raise TypeError(f"{what}: `{name}` cannot be pickled: {error}") from error


def _identity(called: Any) -> tuple[str, str | None]:
    """A callable's name, and the hash of the file it is from; none if it is from no file that can be read."""
    while isinstance(called, functools.partial):
        called = called.func
    called = inspect.unwrap(getattr(called, "__func__", called))
    if not hasattr(called, "__qualname__"):
        called = type(called)
    module = getattr(called, "__module__", None) or ""
    name = f"{module}:{called.__qualname__}"
    code = getattr(called, "__code__", None)
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None or (code is not None and code.co_filename.startswith("<")):
        return name, None  # typed at a prompt, or made from text
    try:
        return name, hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return name, None  # in an archive, or gone


@functools.cache
def _dre_caller() -> Callable[..., Any]:
    names: dict[str, Any] = {"__name__": "__fairtrial_contract__"}  # no module of that name: it is pickled by value
    exec(compile(_engine.dre_caller(), "<called as DRE calls it>", "exec"), names)
    caller: Callable[..., Any] = names["__fairtrial_dre__"]
    return caller
