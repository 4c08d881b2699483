"""The engines of this process: what becomes of them when it forks or ends."""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
from typing import TYPE_CHECKING

from . import _engine

if TYPE_CHECKING:
    from ._echo import Echo
    from .futures import Shared

generation = 0  # one more in each forked child: what was made before belongs to the parent


class Owner:
    """Ends an engine, whether or not whoever made it is still there."""

    def __init__(
        self, engine: _engine.Backend | _engine.Cluster | _engine.Courier, echo: Echo | None, shared: Shared
    ) -> None:
        self.engine, self.echo, self.shared = engine, echo, shared

    def shutdown(self, wait: bool, cancel_queued: bool, kill_after: float | None) -> None:
        self.engine.shutdown(wait, cancel_queued, kill_after)
        if self.echo is not None:
            self.echo.close(wait)
        if wait:
            from ._delivery import delivery

            delivery.settle_all(self.shared)
            lifetime.remove(self)

    def drop(self) -> None:
        """Nobody has it any more: it ends by itself when it has done what it was given."""
        self.engine.shutdown(False, False, None)
        if self.echo is not None:
            self.echo.close(False)

    def end(self, *, kill: bool) -> None:
        """At the interpreter's end."""
        self.shutdown(True, kill, 0.0 if kill else None)

    def is_finished(self) -> bool:
        return self.engine.is_finished()


class Lifetime:
    """Owners that are alive, and whether the interpreter is ending."""

    def __init__(self) -> None:
        self.ending = False
        self.lock = threading.RLock()  # an owner is made and added under it
        self.executors: set[Owner] = set()
        self.backends: set[Owner] = set()

    def add(self, owner: Owner, owners: set[Owner]) -> None:
        """Kept until it has nothing left to do, even if its user drops it."""
        with self.lock:
            for other in [other for other in owners if other.is_finished()]:
                owners.discard(other)
            owners.add(owner)

    def remove(self, owner: Owner) -> None:
        with self.lock:
            self.executors.discard(owner)
            self.backends.discard(owner)

    def end_executors(self) -> None:
        """As the standard library does: what was submitted is finished; Ctrl-C kills, now or if it brought us here."""
        self.ending = True
        try:
            for owner in list(self.executors):
                owner.end(kill=_was_interrupted())
        except KeyboardInterrupt:
            for owner in list(self.executors):
                owner.end(kill=True)
            raise
        finally:
            from ._delivery import delivery

            delivery.flush()

    def end_backends(self) -> None:
        """Only daemon threads are left: nobody will see what their calls give."""
        for owner in list(self.executors | self.backends):
            owner.end(kill=True)
        from ._delivery import delivery

        delivery.end()
        _engine.exiting()


def _was_interrupted() -> bool:
    """Whether a Ctrl-C that nobody caught ends the program."""
    from .errors import is_ctrl_c

    return is_ctrl_c(getattr(sys, "last_value", None)) and not hasattr(sys, "ps1")


def check_kernel() -> None:
    """At the first call, for nothing is asked for before."""
    release = os.uname().release
    numbers = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    if numbers < (5, 13):
        raise _engine.EngineError(f"fairtrial needs Linux 5.13 or later, and this is {release}")


lifetime = Lifetime()


def _forked() -> None:
    global generation
    generation += 1
    _engine.forked()
    lifetime.__init__()  # type: ignore[misc]  # its lock may have been held
    from ._delivery import delivery

    delivery.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forked)
# Before non-daemon threads are joined, as `concurrent.futures` does: a callback of theirs may wait for our futures.
threading._register_atexit(lambda: lifetime.end_executors())  # type: ignore[attr-defined]
atexit.register(lambda: lifetime.end_backends())
