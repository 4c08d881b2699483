"""Two threads, started when they are needed: one settles futures that are watched, one runs their callbacks.

Whoever waits for a future's own result needs neither. Callbacks are the user's code and may take for ever: what they
do delays no other future.
"""

from __future__ import annotations

import threading
from concurrent.futures._base import LOGGER
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from . import _engine

if TYPE_CHECKING:
    from .futures import Future, Shared


class Delivery:
    """Brings the ends of calls to those who watch."""

    def __init__(self) -> None:
        self.watch = _engine.Watch()
        self._callbacks: SimpleQueue[Any] = SimpleQueue()
        self._lock = threading.RLock()  # a signal handler may watch, too
        self._threads: list[threading.Thread] = []
        self.has_ended = False

    def start(self) -> _engine.Watch:
        """Where futures are put when their calls end."""
        if not self._threads:
            with self._lock:
                if not self._threads:
                    threads = [
                        threading.Thread(target=self._settle, name="fairtrial-futures", daemon=True),
                        threading.Thread(target=self._run_callbacks, name="fairtrial-callbacks", daemon=True),
                    ]
                    for thread in threads:
                        thread.start()
                    self._threads = threads
        return self.watch

    def call_back(self, future: Future[Any]) -> None:
        """Has the future's callbacks run."""
        self.start()
        with future._shared.lock:
            future._shared.callbacks += 1
        self._callbacks.put(future)

    def settle_all(self, shared: Shared) -> None:
        """Returns when all calls that ended before are settled and the callbacks of one executor's have run."""
        if self._threads and threading.current_thread() not in self._threads and not self.has_ended:
            self._settle_watched()
            with shared.lock:
                shared.called_back.wait_for(lambda: shared.callbacks == 0)

    def _settle_watched(self) -> None:
        if self._threads:
            marker = _Marker()
            self.watch.put(marker)
            marker.passed.wait()

    def flush(self) -> None:
        """When the main thread has ended: what was settled before is delivered. Other threads may go on."""
        self._settle_watched()
        if self._threads:
            marker = _Marker()
            self._callbacks.put(marker)
            marker.passed.wait()

    def end(self) -> None:
        """Only daemon threads are left, and ours will stand still: who watches from now on has to wait."""
        self.has_ended = True

    def _settle(self) -> None:
        while True:
            futures = self.watch.next()
            assert futures is not None, "nobody closes it"
            for future in futures:
                try:
                    future._settle()
                except BaseException:
                    _log("settling a future")
            del futures, future

    def _run_callbacks(self) -> None:
        while True:
            future = self._callbacks.get()
            if isinstance(future, _Marker):
                future.passed.set()
                continue
            try:
                future._invoke_callbacks()
            except BaseException:
                _log("running the callbacks of a future")
            shared = future._shared
            with shared.lock:
                shared.callbacks -= 1
                shared.called_back.notify_all()
            del future, shared


def _log(what: str) -> None:
    """Says that it failed; whatever the user's log handlers do, these threads go on."""
    try:
        LOGGER.exception(what)
    except BaseException:
        pass


class _Marker:
    """Goes the way of a future, behind those that are there."""

    def __init__(self) -> None:
        self.passed = threading.Event()

    def _settle(self) -> None:
        self.passed.set()


delivery = Delivery()
