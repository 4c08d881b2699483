"""One call at a time, without a backend of one's own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ._checks import refuse_unknown
from ._lifetime import lifetime
from .backends import Backend, LocalBackend
from .calls import Call, CpuTime, Limits
from .errors import error_of
from .outcomes import Outcome

if TYPE_CHECKING:
    from typing_extensions import Unpack

_default: LocalBackend | None = None


class CodeOptions(TypedDict, total=False):
    """What `run_code` takes of a `Call`."""

    kwargs: Mapping[str, Any] | None
    id: str | int | None
    python: str | os.PathLike[str] | None
    python_path: Iterable[str | os.PathLike[str]]
    preload: Iterable[str]
    preload_shared: Iterable[str]
    isolation: str
    result: str
    env: Mapping[str, str | None] | None
    cwd: str | os.PathLike[str] | None
    queue_timeout_s: float | None
    sandbox: str | Mapping[str, Any] | None
    capture_bytes: int | str


def run(call: Call, backend: Backend | None = None) -> Outcome:
    """Runs a call and returns its outcome, whatever it is; raises only `EngineError`.

    >>> import fairtrial as ft
    >>> ft.run(ft.Call(source="def f(): import os; os._exit(3)", function="f")).verdict
    'exit'
    """
    return (backend or _default_backend()).execute(call)


async def arun(call: Call, backend: Backend | None = None) -> Outcome:
    """As `run`, in asyncio: any loop, several in turn. A task that is cancelled kills its call.

    >>> import asyncio, fairtrial as ft
    >>> asyncio.run(ft.arun(ft.Call(source="def f(): return 1", function="f"))).value
    1
    """
    backend = backend or _default_backend()
    aexecute = getattr(backend, "aexecute", None)
    if aexecute is not None:
        outcome: Outcome = await aexecute(call)
        return outcome
    import asyncio

    return await asyncio.get_running_loop().run_in_executor(None, backend.execute, call)


def run_code(
    source: str,
    function: str,
    *args: Any,
    timeout: float | CpuTime | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    backend: Backend | None = None,
    **options: Unpack[CodeOptions],
) -> Any:
    """The value of `function(*args)` of a source text; raises a `CandidateError` if there is none.

    `options` are those of `Call`: `kwargs`, `env`, `cwd`, `python`, `preload` and so on.

    >>> import fairtrial as ft
    >>> ft.run_code("def add(a, b): return a + b", "add", 1, 2, timeout=5)
    3
    """
    refuse_unknown("run_code()", options, (*CodeOptions.__annotations__, "timeout", "limits", "backend"))
    call = Call(source=source, function=function, args=args, timeout_s=timeout, limits=limits, **options)
    outcome = run(call, backend)
    if not outcome.ok:
        raise error_of(outcome)
    return outcome.value


def shutdown() -> None:
    """Ends the backend that `run` and its like use; the next call starts another.

    >>> import fairtrial as ft
    >>> ft.shutdown()
    """
    global _default
    with lifetime.lock:
        backend, _default = _default, None
    if backend is not None:
        backend.shutdown()


def _default_backend() -> LocalBackend:
    global _default
    with lifetime.lock:
        if _default is None:
            _default = LocalBackend()
        return _default
