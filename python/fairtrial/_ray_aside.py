"""A few threads for what waits for a store, so that nobody else waits behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

THREADS = 4  # a store takes several at a time


class Aside:
    """Does what it is given, on threads of its own. Starts none before the first, and one thread uses it."""

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        """`fail(error)` is told, on any thread, of what should not have been."""
        self._fail = fail
        self._given: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def do(self, work: Callable[[], object]) -> None:
        self._given.put(work)
        if len(self._threads) < THREADS:
            thread = threading.Thread(target=self._serve, name="fairtrial-ray-aside", daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """Waits until all is done: no thread may be in the engine when the interpreter ends."""
        for _ in self._threads:
            self._given.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (work := self._given.get()) is not None:
            try:
                work()
            except BaseException as error:
                self._fail(error)
