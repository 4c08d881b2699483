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
    from .futures import Future


class Delivery:
    """Brings the ends of calls to those who watch."""

    def __init__(self) -> None:
        self.watch = _engine.Watch()
        self._callbacks: SimpleQueue[Any] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

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
        self._callbacks.put(future)

    def settle_all(self) -> None:
        """Returns when all calls that ended before are settled and their callbacks have run."""
        if self._threads and threading.current_thread() not in self._threads:
            marker = _Marker(self._callbacks)
            self.watch.put(marker)
            marker.passed.wait()

    def stop(self) -> None:
        """At the interpreter's end."""
        self.settle_all()
        self.watch.close()
        self._callbacks.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _settle(self) -> None:
        while True:
            futures = self.watch.next()
            if futures is None:
                return
            for future in futures:
                try:
                    future._settle()
                except BaseException:
                    _log("settling a future")
            del futures, future

    def _run_callbacks(self) -> None:
        while True:
            future = self._callbacks.get()
            if future is None:
                return
            try:
                future._invoke_callbacks()
            except BaseException:
                _log("running the callbacks of a future")
            del future


def _log(what: str) -> None:
    """Says that it failed; whatever the user's log handlers do, these threads go on."""
    try:
        LOGGER.exception(what)
    except BaseException:
        pass


class _Marker:
    """Goes the way of a future, behind those that are there."""

    def __init__(self, callbacks: SimpleQueue[Any]) -> None:
        self.passed = threading.Event()
        self._callbacks = callbacks

    def _settle(self) -> None:
        self._callbacks.put(self)

    def _invoke_callbacks(self) -> None:
        self.passed.set()


delivery = Delivery()
