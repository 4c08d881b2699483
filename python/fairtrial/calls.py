"""What to run and on which terms."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from . import _engine
from ._checks import (
    check_bytes,
    check_count,
    check_env,
    check_items,
    check_named,
    check_path,
    check_paths,
    check_seconds,
    check_size,
    check_text,
    check_text_or_none,
    check_texts,
    refuse_unknown,
)
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
        **unknown: NoReturn,
    ) -> None:
        refuse_unknown(Limits, unknown)
        put = object.__setattr__
        put(self, "memory", _cap(check_size, "memory", memory))
        put(self, "cpu", check_seconds("cpu", cpu))
        put(self, "processes", _cap(check_count, "processes", processes))
        put(self, "open_files", _cap(check_count, "open_files", open_files))
        put(self, "file_size", _cap(check_size, "file_size", file_size))
        put(self, "output", check_size("output", output))


@dataclass(frozen=True)
class CpuTime:
    """A timeout in seconds of processor time: the same however busy the machine is.

    What a call uses in all its processes decides. Wall time only guards against sleepers and deadlocks: three times as
    long and 5 s, in which time that it waits for a processor does not count.

    >>> import fairtrial as ft
    >>> ft.run(ft.Call(argv=["sh", "-c", "while :; do :; done"], timeout_s=ft.CpuTime(0.1))).verdict
    'timeout'
    """

    seconds: float


def check_timeout(name: str, timeout: float | CpuTime | None) -> tuple[float | None, str]:
    """A timeout as users give it: its seconds, and what they count."""
    if isinstance(timeout, CpuTime):
        if timeout.seconds is None:
            raise ValueError(f"`{name}`: CpuTime needs a number of seconds")
        return check_seconds(name, timeout.seconds), "cpu"
    return check_seconds(name, timeout), "wall"


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
    python: str | None
    python_path: tuple[str, ...]
    preload: tuple[str, ...]
    preload_shared: tuple[str, ...]
    isolation: str
    result: str
    env: Mapping[str, str | None]
    cwd: str | None
    timeout_s: float | None
    time: str
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
        python: str | os.PathLike[str] | None = None,
        python_path: Iterable[str | os.PathLike[str]] = (),
        preload: Iterable[str] = (),
        preload_shared: Iterable[str] = (),
        isolation: str = "fresh",
        result: str = "data",
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout_s: float | CpuTime | None = None,
        time: str | None = None,
        queue_timeout_s: float | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        sandbox: str | Mapping[str, Any] | None = None,
        capture_bytes: int | str = DEFAULT_CAPTURE_BYTES,
        **unknown: NoReturn,
    ) -> None:
        """`python` is this interpreter unless another is named; `cwd` an empty directory of the call's own."""
        refuse_unknown(Call, unknown)
        put = object.__setattr__
        put(self, "source", check_text_or_none("source", source))
        put(self, "file", check_path("file", file))
        put(self, "function", check_text_or_none("function", function))
        put(self, "args", tuple(check_items("args", args)))
        put(self, "kwargs", check_named("kwargs", kwargs))
        put(self, "argv", None if argv is None else check_paths("argv", argv))
        put(self, "stdin", check_bytes("stdin", stdin))
        put(self, "id", id)
        put(self, "python", check_path("python", python))
        put(self, "python_path", check_paths("python_path", python_path))
        put(self, "preload", check_texts("preload", preload))
        put(self, "preload_shared", check_texts("preload_shared", preload_shared))
        put(self, "isolation", check_text("isolation", isolation))
        put(self, "result", check_text("result", result))
        put(self, "env", check_env(env))
        put(self, "cwd", check_path("cwd", cwd))
        seconds, counts = check_timeout("timeout_s", timeout_s)
        put(self, "timeout_s", seconds)
        if counts == "cpu" and time == "wall":
            raise ValueError("`time`: a `CpuTime` counts processor time, not `wall`")
        put(self, "time", counts if time is None else check_text("time", time))
        put(self, "queue_timeout_s", check_seconds("queue_timeout_s", queue_timeout_s))
        put(self, "limits", as_limits(limits))
        put(self, "sandbox", as_sandbox(sandbox))
        capture = check_size("capture_bytes", capture_bytes, least=0)
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
        python = {
            "python": self.python if self.python is not None else sys.executable or "python3",
            "python_path": list(self.python_path),
            "preload": list(self.preload),
            "preload_shared": list(self.preload_shared),
            "isolation": self.isolation,
            "result": self.result,
            "host": None,
        }
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
        "time": terms.time,
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
    **unknown: NoReturn,
) -> dict[str, Any]:
    refuse_unknown(_sandbox, unknown, title="sandbox()")
    if level is None:
        raise ValueError("`sandbox`: `level` is missing; give 'none', 'limits', 'confined' or 'strict'")
    given: dict[str, Any] = {
        "level": check_text("sandbox.level", level),
        "on_missing": check_text_or_none("sandbox.on_missing", on_missing),
        "network": check_text_or_none("sandbox.network", network),
        "read": _places("sandbox.read", read),
        "write": _places("sandbox.write", write),
        "address_space": check_size("sandbox.address_space", address_space),
    }
    if devices is not None:
        given["devices"] = check_texts("sandbox.devices", devices)
    if cpus is not None:
        given["cpus"] = tuple(check_count("sandbox.cpus", cpu, 0) for cpu in check_items("sandbox.cpus", cpus))
    quotas = {
        "scratch_bytes": _cap(check_size, "sandbox.scratch_bytes", scratch_bytes),
        "scratch_inodes": _cap(check_count, "sandbox.scratch_inodes", scratch_inodes),
    }
    return {key: value for key, value in given.items() if value is not None} | {
        key: value for key, value in quotas.items() if value != "default"
    }


def _cap(check: Callable[[str, Any], int | None], name: str, value: int | str | None) -> int | Default | None:
    return "default" if value == "default" else check(name, value)


def _places(name: str, paths: Iterable[str | os.PathLike[str]] | None) -> tuple[str, ...] | None:
    if paths is None:
        return None
    texts = check_paths(name, paths)
    if not all(texts):
        raise ValueError(f"`{name}` has an empty path")
    return tuple(os.path.abspath(text) for text in texts)
