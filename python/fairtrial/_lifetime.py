"""The engines of this process: what becomes of them when it forks or ends."""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
from typing import Protocol

from . import _engine

generation = 0  # one more in each forked child: what was made before belongs to the parent


class Owner(Protocol):
    """Somebody who has an engine."""

    def end(self, *, kill: bool) -> None: ...
    def is_finished(self) -> bool: ...


class Lifetime:
    """Owners that are alive, and whether the interpreter is ending."""

    def __init__(self) -> None:
        self.ending = False
        self.lock = threading.Lock()
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

            delivery.stop()

    def end_backends(self) -> None:
        """Only daemon threads are left: nobody will see what their calls give."""
        for owner in list(self.executors | self.backends):
            owner.end(kill=True)
        _engine.exiting()


def _was_interrupted() -> bool:
    """Whether a Ctrl-C that nobody caught ends the program."""
    last = getattr(sys, "last_type", None)
    return isinstance(last, type) and issubclass(last, KeyboardInterrupt) and not hasattr(sys, "ps1")


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
