"""What to run and on which terms."""

from __future__ import annotations

import difflib
import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _engine
from ._shim import codec as _codec

DEFAULT_CAPTURE_BYTES = 1 << 20
DEFAULT_OUTPUT_BYTES = 64 << 20

Default = Literal["default"]


@dataclass(frozen=True, init=False)
class Limits:
    """What a call may use: sizes as ints or text ("512M"), times in seconds; None is no limit.

    "default" is what the call's sandbox has: nothing at level "none".

    >>> import fairtrial as ft
    >>> ft.Limits(memory="512M", cpu=2.5).memory
    536870912
    """

    memory: int | Default | None
    cpu: float | None
    processes: int | Default | None
    open_files: int | Default | None
    file_size: int | Default | None
    output: int | None

    def __init__(
        self,
        *,
        memory: int | str | None = "default",
        cpu: float | None = None,
        processes: int | Default | None = "default",
        open_files: int | Default | None = "default",
        file_size: int | str | None = "default",
        output: int | str | None = DEFAULT_OUTPUT_BYTES,
        **unknown: Any,
    ) -> None:
        refuse_unknown(Limits, unknown)
        put = object.__setattr__
        put(self, "memory", _cap(_size, "memory", memory))
        put(self, "cpu", check_seconds("cpu", cpu))
        put(self, "processes", _cap(_count, "processes", processes))
        put(self, "open_files", _cap(_count, "open_files", open_files))
        put(self, "file_size", _cap(_size, "file_size", file_size))
        put(self, "output", _size("output", output))


@dataclass(frozen=True, init=False, repr=False)
class Call:
    """One thing to run: a function in source text, or a program with arguments; the keys are those of the JSON form.

    >>> import fairtrial as ft
    >>> call = ft.Call(source="def f(a, b=1): return a + b", function="f", args=[1], kwargs={"b": 2}, timeout_s=5)
    >>> ft.run(call).value
    3
    >>> ft.run(ft.Call(argv=["echo", "hello"])).stdout
    'hello\\n'
    """

    source: str | None
    file: str | None
    function: str | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    argv: tuple[str, ...] | None
    stdin: bytes
    id: str | int | None
    python: str
    python_path: tuple[str, ...]
    preload: tuple[str, ...]
    isolation: str
    result: str
    env: Mapping[str, str | None]
    cwd: str | None
    timeout_s: float | None
    queue_timeout_s: float | None
    limits: Limits
    sandbox: str | Mapping[str, Any] | None
    capture_bytes: int

    if TYPE_CHECKING:  # what it was made of, as it was then; no fields
        _text: str
        _arguments: bytes

    def __init__(
        self,
        *,
        source: str | None = None,
        file: str | os.PathLike[str] | None = None,
        function: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        argv: Sequence[str | os.PathLike[str]] | None = None,
        stdin: str | bytes = b"",
        id: str | int | None = None,
        python: str | os.PathLike[str] = "python3",
        python_path: Iterable[str | os.PathLike[str]] = (),
        preload: Iterable[str] = (),
        isolation: str = "fresh",
        result: str = "data",
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout_s: float | None = None,
        queue_timeout_s: float | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        sandbox: str | Mapping[str, Any] | None = None,
        capture_bytes: int | str = DEFAULT_CAPTURE_BYTES,
        **unknown: Any,
    ) -> None:
        refuse_unknown(Call, unknown)
        put = object.__setattr__
        put(self, "source", source)
        put(self, "file", None if file is None else os.fspath(file))
        put(self, "function", function)
        put(self, "args", tuple(args))
        put(self, "kwargs", dict(kwargs or {}))
        put(self, "argv", None if argv is None else tuple(os.fspath(word) for word in _words("argv", argv)))
        put(self, "stdin", stdin.encode() if isinstance(stdin, str) else bytes(stdin))
        put(self, "id", id)
        put(self, "python", os.fspath(python))
        put(self, "python_path", tuple(os.fspath(entry) for entry in _words("python_path", python_path)))
        put(self, "preload", tuple(_words("preload", preload)))
        put(self, "isolation", isolation)
        put(self, "result", result)
        put(self, "env", dict(env or {}))
        put(self, "cwd", None if cwd is None else os.fspath(cwd))
        put(self, "timeout_s", check_seconds("timeout_s", timeout_s))
        put(self, "queue_timeout_s", check_seconds("queue_timeout_s", queue_timeout_s))
        put(self, "limits", as_limits(limits))
        put(self, "sandbox", as_sandbox(sandbox))
        capture = _size("capture_bytes", capture_bytes, least=0)
        put(self, "capture_bytes", DEFAULT_CAPTURE_BYTES if capture is None else capture)
        self._check_work()
        # What is wrong with it is said here, not when it runs.
        put(self, "_text", self._read_text())
        put(self, "_arguments", self._encode_arguments())
        self._terms()

    def _check_work(self) -> None:
        given = [name for name in ("source", "file", "argv") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a call has one of `source`, `file` and `argv`, not {' and '.join(given) or 'none'}")
        if self.argv is None and not self.function:
            raise ValueError("`function`: name the function to call")
        if self.argv is not None and (self.function is not None or self.args or self.kwargs):
            raise ValueError("`argv`: a command has no `function`, `args` or `kwargs`")

    def _terms(self) -> _engine.Terms:
        terms = engine_terms(self, env=self.env)
        if self.argv is not None:
            return _engine.Terms.command(list(self.argv), terms)
        assert self.function is not None, "checked before"
        python = {name: getattr(self, name) for name in ("python", "isolation", "result")}
        python |= {"python_path": list(self.python_path), "preload": list(self.preload), "host": None}
        return _engine.Terms.source(self._text, self.file or "<source>", self.function, terms, python)

    def _read_text(self) -> str:
        if self.file is None:
            return self.source or ""
        try:
            with open(self.file, encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"`file`: {error}") from None

    def _encode_arguments(self) -> bytes:
        if self.argv is not None:
            return self.stdin
        try:
            return b"".join(_codec.encode((self.args, self.kwargs)))
        except _codec.Unencodable as error:
            raise ValueError(f"the arguments are not plain data: {error.path}: {error.what}") from None

    def __repr__(self) -> str:
        what = f"argv={self.argv[0]!r}, …" if self.argv is not None else f"function={self.function!r}"
        return f"<Call {what}>"


def engine_terms(terms: Any, env: Mapping[str, str | None]) -> dict[str, Any]:
    """What the engine wants to know of a call's terms."""
    limits: Limits = terms.limits
    given = {
        "memory_bytes": limits.memory,
        "processes": limits.processes,
        "open_files": limits.open_files,
        "file_bytes": limits.file_size,
        "output_bytes": limits.output,
    }
    return {
        "timeout_s": terms.timeout_s,
        "queue_timeout_s": terms.queue_timeout_s,
        "env": dict(env),
        "cwd": terms.cwd,
        "sandbox": _engine_sandbox(terms.sandbox),
        "capture_bytes": terms.capture_bytes,
        "cpu_s": limits.cpu,
        "limits": {key: limit for key, limit in given.items() if limit != "default"},
    }


def _engine_sandbox(sandbox: str | Mapping[str, Any] | None) -> dict[str, Any] | None:
    if sandbox is None:
        return None
    given = {"level": sandbox} if isinstance(sandbox, str) else sandbox
    return {
        "level": given["level"],
        "on_missing": given.get("on_missing"),
        "network": given.get("network"),
        "read": list(given.get("read", ())),
        "write": list(given.get("write", ())),
        "address_space": given.get("address_space"),
        "devices": list(given.get("devices", ())),
        "cpus": given.get("cpus"),
        "quotas": {key: given[key] for key in ("scratch_bytes", "scratch_inodes") if key in given},
    }


def as_limits(limits: Limits | Mapping[str, Any] | None) -> Limits:
    """Limits as users give them; a mapping has the JSON's keys or ours."""
    if limits is None:
        return Limits()
    if isinstance(limits, Limits):
        return limits
    if not isinstance(limits, Mapping):
        raise TypeError(f"limits must be a Limits or a mapping, not {type(limits).__name__}")
    ours = {"memory_bytes": "memory", "cpu_s": "cpu", "file_bytes": "file_size", "output_bytes": "output"}
    return Limits(**{ours.get(key, key): value for key, value in limits.items()})


def as_sandbox(sandbox: str | Mapping[str, Any] | None) -> str | dict[str, Any] | None:
    """A sandbox as users give it: a level, or a mapping with the JSON's keys, of which those given are kept."""
    if sandbox is None or isinstance(sandbox, str):
        return sandbox
    if not isinstance(sandbox, Mapping):
        raise TypeError(f"sandbox must be a level or a mapping, not {type(sandbox).__name__}")
    return _sandbox(**sandbox)


def _sandbox(
    *,
    level: str | None = None,
    on_missing: str | None = None,
    network: str | None = None,
    read: Iterable[str | os.PathLike[str]] | None = None,
    write: Iterable[str | os.PathLike[str]] | None = None,
    scratch_bytes: int | str | None = "default",
    scratch_inodes: int | Default | None = "default",
    address_space: int | str | None = None,
    devices: Iterable[str] | None = None,
    cpus: Iterable[int] | None = None,
    **unknown: Any,
) -> dict[str, Any]:
    refuse_unknown(_sandbox, unknown, "sandbox")
    if level is None:
        raise ValueError("`sandbox`: `level` is missing; give 'none', 'limits' or 'strict'")
    given: dict[str, Any] = {
        "level": _text("sandbox.level", level),
        "on_missing": _text("sandbox.on_missing", on_missing),
        "network": _text("sandbox.network", network),
        "read": _paths("sandbox.read", read),
        "write": _paths("sandbox.write", write),
        "address_space": _size("sandbox.address_space", address_space),
    }
    if devices is not None:
        given["devices"] = tuple(_text("sandbox.devices", name) for name in _words("sandbox.devices", devices))
    if cpus is not None:
        given["cpus"] = tuple(_count("sandbox.cpus", cpu, 0) for cpu in _words("sandbox.cpus", cpus))
    quotas = {
        "scratch_bytes": _cap(_size, "sandbox.scratch_bytes", scratch_bytes),
        "scratch_inodes": _cap(_count, "sandbox.scratch_inodes", scratch_inodes),
    }
    return {key: value for key, value in given.items() if value is not None} | {
        key: value for key, value in quotas.items() if value != "default"
    }


def refuse_unknown(of: Any, unknown: Mapping[str, Any], title: str = "") -> None:
    """Says which keyword was meant."""
    for name in unknown:
        parameters = inspect.signature(of).parameters.values()
        known = [known.name for known in parameters if known.kind is not known.VAR_KEYWORD]
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(known)}"
        raise TypeError(f"{title or of.__name__}() got an unexpected keyword argument {name!r}{hint}")


def check_seconds(name: str, value: float | None) -> float | None:
    """A positive, finite number of seconds, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"`{name}` must be a number of seconds, not {value!r}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"`{name}` must be a positive number of seconds, not {value!r}")
    return float(value)


def _size(name: str, value: int | str | None, least: int = 1) -> int | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = _engine.parse_size(value)
        except ValueError as error:
            raise ValueError(f"`{name}`: {error}") from None
    return _count(name, value, least)


def _cap(check: Callable[[str, Any], int | None], name: str, value: int | str | None) -> int | Default | None:
    return "default" if value == "default" else check(name, value)


def _count(name: str, value: int | None, least: int = 1) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
        raise ValueError(f"`{name}` must be a whole number of at least {least}, not {value!r}")
    return value


def _words(name: str, words: Iterable[Any]) -> list[Any]:
    if isinstance(words, (str, bytes)):
        raise ValueError(f"`{name}` is a list, not a text: [{words!r}]")
    return list(words)


def _text(name: str, value: str | None) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"`{name}` must be a text, not {value!r}")
    return value


def _paths(name: str, paths: Iterable[str | os.PathLike[str]] | None) -> tuple[str, ...] | None:
    if paths is None:
        return None
    texts = [os.fspath(path) for path in _words(name, paths)]
    if not all(texts):
        raise ValueError(f"`{name}` has an empty path")
    return tuple(os.path.abspath(text) for text in texts)
