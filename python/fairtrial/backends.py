"""Backends: who runs calls, and hooks that are told."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar, runtime_checkable

from . import _engine, _lifetime
from ._checks import (
    check_count,
    check_flag,
    check_kill_after,
    check_path,
    check_seconds,
    check_size,
    check_text_or_none,
    check_texts,
    check_workers,
    refuse_unknown,
)
from ._compiled import shim_code
from .calls import Call
from .errors import is_ctrl_c
from .futures import Future, Shared
from .outcomes import Outcome, take_outcome

if TYPE_CHECKING:
    from typing_extensions import Self

Unsubscribe = Callable[[], None]


@dataclass(frozen=True)
class Event:
    """What a backend tells its hooks: `name` says what happened, the rest is None where it does not apply.

    `call_id` is that of the call's `Future` and `Outcome`.

    >>> import fairtrial as ft
    >>> ft.Event("submit", call_id=1).name
    'submit'
    """

    name: str
    call_id: int | None = None
    verdict: str | None = None
    worker_id: str | None = None
    pid: int | None = None
    reason: str | None = None
    zygote_threads: int | None = None
    closed_fds: dict[int, str] | None = field(default=None, hash=False)
    level: str | None = None
    mechanism: str | None = None


@runtime_checkable
class Backend(Protocol):
    """Anything that runs calls.

    >>> import fairtrial as ft
    >>> isinstance(ft.LocalBackend(), ft.Backend)
    True
    """

    def execute(self, call: Call) -> Outcome:
        """Runs a call to its end; raises only `EngineError`."""
        ...

    def shutdown(self) -> None:
        """Takes no more calls."""
        ...


@runtime_checkable
class Hooks(Protocol):
    """Anything that can be asked to tell of events; each function returns one that ends the subscription.

    >>> import fairtrial as ft
    >>> isinstance(ft.LocalBackend(), ft.Hooks)
    True
    """

    def on_submit(self, hook: Callable[[Event], Any]) -> Unsubscribe: ...
    def on_complete(self, hook: Callable[[Event], Any]) -> Unsubscribe: ...
    def on_worker_start(self, hook: Callable[[Event], Any]) -> Unsubscribe: ...
    def on_worker_exit(self, hook: Callable[[Event], Any]) -> Unsubscribe: ...
    def on_shutdown(self, hook: Callable[[Event], Any]) -> Unsubscribe: ...


E = TypeVar("E", _engine.Backend, _engine.Cluster, _engine.Courier)


class EngineBackend(Generic[E]):
    """What all backends of this package do; who runs their calls, they say themselves."""

    _started: E
    _owner: _lifetime.Owner

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[[Event], Any]]] = {}
        self._shared = Shared()
        self._generation = -1
        self._is_shut_down = False

    def _make(self) -> E:
        """The engine, which has started nothing yet."""
        raise NotImplementedError

    # -- calls

    def submit(self, call: Call) -> Future[Any]:
        """Submits a call; `outcome()` of the future is what `execute` returns."""
        terms, arguments = parts(call)
        return Future(self._running_engine().submit(terms, arguments), self._shared)

    def execute(self, call: Call) -> Outcome:
        """Runs a call to its end; raises only `EngineError`. Ctrl-C kills it."""
        return self._see_through(self.submit(call))

    def _see_through(self, future: Future[Any]) -> Outcome:
        try:
            future._pending.wait_answer()
        except BaseException:
            future.cancel()
            raise
        return take_outcome(future._pending, closed=True)

    async def aexecute(self, call: Call) -> Outcome:
        """As `execute`, in any asyncio loop; a task that is cancelled kills its call."""
        return await self._await_through(lambda: self.submit(call))

    async def _await_through(self, submit: Callable[[], Future[Any]]) -> Outcome:
        import asyncio  # a program without a loop need not load it

        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        # Weak: a loop that is closed drops its tasks, and with a task goes its call.
        waiting = weakref.ref(over)
        future = submit()

        def wake() -> None:
            over = waiting()
            if over is not None:
                try:
                    loop.call_soon_threadsafe(over.set)
                except RuntimeError:
                    pass  # the loop is closed: nobody waits

        future._when_settled(wake)
        try:
            await over.wait()
        except BaseException:  # also when the loop is closed and this coroutine with it
            future.cancel()
            raise
        return take_outcome(future._pending, closed=True)

    def shutdown(self, wait: bool = True, *, cancel_queued: bool = False, kill_after: float | None = None) -> None:
        """Takes no more calls. What still runs `kill_after` seconds from now is killed."""
        kill_after = check_kill_after(kill_after)
        with _lifetime.lifetime.lock:
            self._is_shut_down = True
            started = self._generation == _lifetime.generation
        engine = self._start() if not started and self._hooks else self._started if started else None
        if engine is not None:
            self._owner.shutdown(wait, cancel_queued, kill_after)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_val: object, exc_tb: object) -> None:
        try:
            interrupted = is_ctrl_c(exc_val)
            self.shutdown(cancel_queued=interrupted, kill_after=0.0 if interrupted else None)
        except KeyboardInterrupt:
            self.shutdown(cancel_queued=True, kill_after=0.0)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self.shutdown)

    # -- hooks

    def on_submit(self, hook: Callable[[Event], Any]) -> Unsubscribe:
        """Has `hook(event)` called for each call that is accepted."""
        return self._on("submit", hook)

    def on_start(self, hook: Callable[[Event], Any]) -> Unsubscribe:
        """Has `hook(event)` called for each call that a worker begins."""
        return self._on("start", hook)

    def on_complete(self, hook: Callable[[Event], Any]) -> Unsubscribe:
        """Has `hook(event)` called for each call that is over."""
        return self._on("complete", hook)

    def on_worker_start(self, hook: Callable[[Event], Any]) -> Unsubscribe:
        """Has `hook(event)` called for each process that is started."""
        return self._on("worker_start", hook)

    def on_worker_exit(self, hook: Callable[[Event], Any]) -> Unsubscribe:
        """Has `hook(event)` called for each process that is gone."""
        return self._on("worker_exit", hook)

    def on_degraded(self, hook: Callable[[Event], Any]) -> Unsubscribe:
        """Has `hook(event)` called once for each `mechanism` that calls do without, as their `on_missing` allows."""
        return self._on("degraded", hook)

    def on_shutdown(self, hook: Callable[[Event], Any]) -> Unsubscribe:
        """Has `hook(event)` called when the backend has ended."""
        return self._on("shutdown", hook)

    def _on(self, name: str, hook: Callable[[Event], Any]) -> Unsubscribe:
        if not callable(hook):
            raise TypeError(f"a hook must be a callable, not {hook!r}")

        def subscription(event: Event) -> Any:  # a new one each time: a hook may be registered twice
            return hook(event)

        hooks = self._hooks.setdefault(name, [])
        hooks.append(subscription)

        def unsubscribe() -> None:
            if subscription in hooks:
                hooks.remove(subscription)

        return unsubscribe

    # -- the engine

    def _running_engine(self) -> E:
        if self._is_shut_down:
            raise _engine.EngineError("the backend is shut down")
        return self._started if self._generation == _lifetime.generation else self._start()

    def _start(self) -> E:
        with _lifetime.lifetime.lock:
            if self._generation != _lifetime.generation:
                _lifetime.check_kernel()
                self._started = self._make()
                self._listen(self._started)
                self._owner = _lifetime.Owner(self._started, None, self._shared)
                _lifetime.lifetime.add(self._owner, _lifetime.lifetime.backends)
                weakref.finalize(self, self._owner.drop).atexit = False
                self._generation = _lifetime.generation
            return self._started

    def _listen(self, engine: E) -> None:
        engine.subscribe(_teller(self._hooks))


class LocalBackend(EngineBackend[_engine.Backend]):
    """Runs calls on this machine. Nothing is started before the first one.

    >>> import fairtrial as ft
    >>> with ft.LocalBackend(max_workers=1) as backend:
    ...     backend.execute(ft.Call(source="def f(): return 7", function="f")).value
    7
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        idle_timeout: float | None = None,
        max_calls: int | None = None,
        max_age: float | None = None,
        rss_growth: int | str | None = None,
        after_error: bool = False,
        env_allow: Iterable[str] = (),
        env_prefixes: Iterable[str] = (),
        spill_dir: str | os.PathLike[str] | None = None,
        memfd_cap: int | str | None = None,
        node_id: str | None = None,
        launcher: str | os.PathLike[str] | None = None,
        **unknown: NoReturn,
    ) -> None:
        """`max_calls`, `max_age`, `rss_growth` and `after_error` say when a `reuse` worker is replaced.

        `env_allow` and `env_prefixes` pass on more of the environment; values larger than `memfd_cap` go to
        `spill_dir`.
        """
        super().__init__()
        refuse_unknown(LocalBackend, unknown)
        check_workers(max_workers)
        self._options = engine_options(
            max_workers=max_workers,
            idle_timeout_s=check_seconds("idle_timeout", idle_timeout),
            max_calls=check_count("max_calls", max_calls),
            max_age_s=check_seconds("max_age", max_age),
            rss_growth_bytes=check_size("rss_growth", rss_growth),
            after_error=check_flag("after_error", after_error),
            env_allow=list(check_texts("env_allow", env_allow)),
            env_prefixes=list(check_texts("env_prefixes", env_prefixes)),
            spill_dir=check_path("spill_dir", spill_dir),
            memfd_cap_bytes=check_size("memfd_cap", memfd_cap),
            node_id=check_text_or_none("node_id", node_id),
            launcher=check_path("launcher", launcher),
        )

    def sandbox_report(self, level: str = "limits") -> dict[str, Any]:
        """What isolation a level has on this machine: each mechanism, and what came of trying what the level forbids.

        Runs a self-test of about a second, unless one was kept in the user's cache directory since the machine was
        started. Equal machines give an equal `digest`.

        >>> import fairtrial as ft
        >>> with ft.LocalBackend() as backend:
        ...     report = backend.sandbox_report("none")
        >>> report["requested"], report["mechanisms"]["clean_env"]["state"]
        ('none', 'enforced')
        """
        if not isinstance(level, str):
            raise TypeError(f"level must be a str, not {type(level).__name__}")
        return self._running_engine().sandbox_report(level)

    def __repr__(self) -> str:
        return f"<LocalBackend max_workers={self._options['max_workers'] or 'default'}>"

    def _make(self) -> _engine.Backend:
        return _engine.Backend(self._options)


class RedisBackend(EngineBackend[_engine.Cluster]):
    """Runs calls by agents (`fairtrial agent`) that lease them from a Redis server. The first call connects.

    `queue` names the queue for whoever comes back to it; `max_inflight` is how many calls run at a time. Values that
    are too large for a message go through `blobs`, a store that the agents reach too: `file:///DIR`, `s3://…` or
    `https://…`; on one machine there is one already. A full queue makes calls wait, or fail with `on_full="error"`.
    With `cls="timing"` each call has its machine to itself, if an agent there serves that class.
    The same options can stand in the URL's query; those given here win. `"@FILE"` reads the URL from a file: there a
    password is seen by nobody who may not read it.

    >>> import fairtrial as ft
    >>> ft.RedisBackend("redis://127.0.0.1:6379", max_inflight=8)
    <RedisBackend redis://127.0.0.1:6379>
    """

    def __init__(
        self,
        url: str,
        *,
        queue: str | None = None,
        cls: str | None = None,
        weight: int | None = None,
        max_queue: int | None = None,
        max_inflight: int | None = None,
        blobs: str | None = None,
        on_full: str | None = None,
        server_timeout: float | None = None,
        lease: float | None = None,
        **unknown: NoReturn,
    ) -> None:
        """A `server_timeout` is how long the server may be away (600 s), a `lease` how long an agent (30 s)."""
        super().__init__()
        refuse_unknown(RedisBackend, unknown)
        if not isinstance(url, str):
            raise TypeError(f"url must be a str, not {type(url).__name__}")
        self._url = _url(url)
        given: dict[str, str | None] = {
            "queue": check_text_or_none("queue", queue),
            "cls": check_text_or_none("cls", cls),
            "weight": _number("weight", weight),
            "max_queue": _number("max_queue", max_queue),
            "max_inflight": _number("max_inflight", max_inflight),
            "blobs": check_text_or_none("blobs", blobs),
            "on_full": check_text_or_none("on_full", on_full),
            "server_timeout": _seconds("server_timeout", server_timeout),
            "lease": _seconds("lease", lease),
        }
        self._options = {name: text for name, text in given.items() if text is not None}
        self._make()  # refuses now what could never work, and connects to nothing

    def __repr__(self) -> str:
        scheme, _, place = self._url.partition("://")
        return f"<RedisBackend {scheme}://{place.rpartition('@')[2].partition('?')[0]}>"

    def _make(self) -> _engine.Cluster:
        return _engine.Cluster(self._url, self._options, "%d.%d" % sys.version_info[:2])


def _url(given: str) -> str:
    """The URL itself, or what a file says it is."""
    if not given.startswith("@"):
        return given
    with open(given[1:]) as file:
        url = file.read().strip()
    if not url:
        raise ValueError(f"url: `{given}` is empty; it is to hold a URL, for example `redis://host:6379`")
    return url


def _number(name: str, value: int | None) -> str | None:
    checked = check_count(name, value)
    return None if checked is None else str(checked)


def _seconds(name: str, value: float | None) -> str | None:
    checked = check_seconds(name, value)
    return None if checked is None else f"{checked}s"


def parts(call: Call) -> tuple[_engine.Terms, bytes]:
    """A call as the engine takes it."""
    if not isinstance(call, Call):
        raise TypeError(f"expected a Call, not {type(call).__name__}")
    return call._terms(), call._arguments


def _teller(hooks: dict[str, list[Callable[[Event], Any]]]) -> Callable[[str, dict[str, Any]], None]:
    def tell(name: str, fields: dict[str, Any]) -> None:
        if not hooks.get(name):
            return
        event = Event(name, **fields)
        for hook in list(hooks[name]):
            try:
                hook(event)
            except BaseException:
                import logging

                logging.getLogger("fairtrial").exception("a hook on %s failed", name)

    return tell


def engine_options(**given: Any) -> dict[str, Any]:
    """A backend's options as the engine takes them."""
    options: dict[str, Any] = {
        "max_workers": None,
        "idle_timeout_s": None,
        "max_calls": None,
        "max_age_s": None,
        "rss_growth_bytes": None,
        "after_error": False,
        "env_allow": [],
        "env_prefixes": [],
        "spill_dir": None,
        "memfd_cap_bytes": None,
        "node_id": None,
        "launcher": None,
        "shim": (sys.executable, shim_code()),
    }
    return options | given
