"""Calls run by the nodes of a Ray cluster, each by an engine of its own.

Verdicts, limits and metrics are those of a local run. Ray carries bytes and unpickles nothing of a call's.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Iterable
from functools import partial
from typing import Any, NoReturn

from . import _engine, _lifetime
from ._checks import check_count, check_text_or_none, check_texts, refuse_unknown
from ._ray_driver import Driver, Settings
from .backends import EngineBackend, parts
from .calls import Call
from .futures import Future
from .outcomes import Outcome

try:
    from ._ray_cluster import Cluster
except ModuleNotFoundError as _error:
    if (_error.name or "").split(".")[0] != "ray":
        raise
    raise ImportError("fairtrial.ray needs Ray: pip install fairtrial[ray]") from _error

__all__ = ["RayBackend"]

CLASSES = ("cpu", "timing")


class RayBackend(EngineBackend[_engine.Courier]):
    """Runs calls on the nodes of a Ray cluster. The first call joins it, or starts one on this machine.

    Each node has an actor with a local engine, which takes `slots` of the node's processors, or all of them. A call
    whose actor is lost is run again, up to `max_deliver` times in all. `classes` are the kinds of calls; a call of the
    kind "timing" has a node to itself, and those that name none are of the first kind. What is large goes through Ray,
    or through `blobs`, a store that the nodes reach too: `file:///DIR`, `s3://…` or `https://…`.

    >>> import fairtrial as ft
    >>> ft.ray.RayBackend(slots=2)
    <RayBackend address=None slots=2>
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        slots: int | None = None,
        classes: Iterable[str] = ("cpu",),
        max_deliver: int = 3,
        blobs: str | None = None,
        **unknown: NoReturn,
    ) -> None:
        """Without an `address` it is RAY_ADDRESS's cluster, or one that is started for as long as this lives."""
        super().__init__()
        refuse_unknown(RayBackend, unknown)
        self._address = check_text_or_none("address", address)
        self._classes = _check_classes(classes)
        deliver = check_count("max_deliver", max_deliver)
        self._settings = Settings(
            slots=check_count("slots", slots),
            max_deliver=3 if deliver is None else deliver,
            blobs=check_text_or_none("blobs", blobs),
        )
        self._courier()  # refuses now what could never work, and joins nothing

    def submit(self, call: Call, *, cls: str | None = None) -> Future[Any]:
        """Submits a call; `outcome()` of the future is what `execute` returns."""
        terms, arguments = parts(call)
        kind = self._classes[0] if cls is None else cls
        if kind not in self._classes:
            raise ValueError(f"`cls`: {kind!r} is none of this backend's classes: {', '.join(self._classes)}")
        return Future(self._running_engine().submit(terms, arguments, kind == "timing"), self._shared)

    def execute(self, call: Call, *, cls: str | None = None) -> Outcome:
        """Runs a call to its end; raises only `EngineError`. Ctrl-C kills it."""
        return self._see_through(self.submit(call, cls=cls))

    async def aexecute(self, call: Call, *, cls: str | None = None) -> Outcome:
        """As `execute`, in any asyncio loop; a task that is cancelled kills its call."""
        return await self._await_through(lambda: self.submit(call, cls=cls))

    def __repr__(self) -> str:
        return f"<RayBackend address={self._address!r} slots={self._settings.slots or 'all'}>"

    def _make(self) -> _engine.Courier:
        courier = self._courier()
        driver = Driver(courier, self._settings, partial(Cluster, self._address, self._settings.slots))
        # It has no reference to this backend, which may go while its calls are on their way.
        threading.Thread(target=driver.run, name="fairtrial-ray", daemon=True).start()
        return courier

    def _courier(self) -> _engine.Courier:
        return _engine.Courier(self._settings.blobs, "%d.%d" % sys.version_info[:2])


def _check_classes(classes: Iterable[str]) -> tuple[str, ...]:
    named = tuple(check_texts("classes", classes))
    if not named:
        raise ValueError("`classes` is empty; give 'cpu', 'timing' or both")
    for name in named:
        if name not in CLASSES:
            raise ValueError(f"`classes`: there is no {name!r}; give 'cpu', 'timing' or both")
    return named


def _end_before_ray() -> None:
    """At the interpreter's end Ray goes too, and before it those who would wait for its answers."""
    for owner in list(_lifetime.lifetime.backends):
        if isinstance(owner.engine, _engine.Courier):
            owner.end(kill=True)


atexit.register(_end_before_ray)  # after Ray's own, so before it
