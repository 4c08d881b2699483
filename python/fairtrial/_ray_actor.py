"""The actor of a node: the local engine behind a few messages of bytes. Unpickles nothing of a call's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from . import _engine
from ._ray_workers import Started
from .backends import LocalBackend
from .futures import Future

BRIEF_S = 0.05  # a call that runs for longer is told of while it runs, and not only with its end

Worker = tuple[Started, "str | None"]  # and why it ended
Reply = tuple[str, bytes, list[bytes], "Worker | None"]
News = tuple[Any, ...]


class NodeBackend(LocalBackend):
    """A local backend whose events go elsewhere than to hooks of this process."""

    def __init__(self, slots: int, node: str, hear: Callable[[_engine.Backend], None]) -> None:
        super().__init__(slots, node_id=node)
        self._hear = hear

    def _listen(self, engine: _engine.Backend) -> None:
        self._hear(engine)


class NodeActor:
    """Runs parcels on the node it was placed on. Its driver gives it as many at a time as it has slots."""

    def __init__(self, slots: int, node: str, blobs: str | None) -> None:
        _engine.become_undumpable()
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray's: so many threads for the actor, not for each of its calls
        self._arrivals = _engine.Arrivals(blobs, node)
        self._backend = NodeBackend(slots, node, lambda engine: self._arrivals.listen(engine, self._wake))
        self._running: dict[tuple[int, int], _engine.Pending | None] = {}
        self._unwanted: set[tuple[int, int]] = set()
        self._timers: dict[tuple[int, int], asyncio.TimerHandle] = {}
        self._begun: list[News] = []
        self._listener = 0  # which `news` is heard: the first one after the latest `ready`
        self._woken = asyncio.Event()

    async def ready(self, known: list[tuple[int, int]]) -> tuple[str, list[str]]:
        """How its node lets others in, and which workers live, once it can run calls.

        What its driver does not know it has, is killed.
        """
        for attempt in set(self._running) - set(known):
            self._cancel(attempt)
        self._dismiss()
        return os.environ.get("RAY_AUTH_MODE", ""), self._arrivals.workers()

    async def run(
        self, call: int, attempt: int, envelope: bytes, directories: dict[str, list[Any]], *beside: bytes
    ) -> Reply:
        """Runs a parcel to its end. A directory comes as a reference, in a list so that Ray leaves it one."""
        key = (call, attempt)
        self._running[key] = None
        try:
            return await self._run(key, envelope, directories, list(beside))
        except Exception as error:  # as text: Ray would pickle it
            return "raised", f"{type(error).__name__}: {error}".encode(errors="replace"), [], None
        finally:
            self._running.pop(key, None)
            self._unwanted.discard(key)

    async def _run(
        self, key: tuple[int, int], envelope: bytes, directories: dict[str, list[Any]], beside: list[bytes]
    ) -> Reply:
        loop = self._loop = asyncio.get_running_loop()
        arrived = await loop.run_in_executor(None, self._arrivals.open, key, envelope, beside)
        if directories:
            for digest in await loop.run_in_executor(None, self._arrivals.lacks, arrived):
                archive = await directories[digest][0]
                await loop.run_in_executor(None, self._arrivals.unpack, arrived, digest, archive)
        pending = self._arrivals.submit(self._backend._running_engine(), arrived)
        if pending is not None:
            self._running[key] = pending
            if key in self._unwanted:
                pending.cancel()
            self._look_later(key, arrived)
            try:
                await self._ended(pending)
            finally:
                self._timers.pop(key).cancel()
        return await loop.run_in_executor(None, self._arrivals.reply, arrived, pending)

    def _look_later(self, key: tuple[int, int], arrived: _engine.Arrived) -> None:
        self._timers[key] = self._loop.call_later(BRIEF_S, self._look, key, arrived)

    def _look(self, key: tuple[int, int], arrived: _engine.Arrived) -> None:
        """Tells that a call runs; one that does not yet is looked at again."""
        worker = arrived.worker()
        if worker is None:
            self._look_later(key, arrived)
        else:
            self._begun.append(("began", *key, worker))
            self._woken.set()

    async def _ended(self, pending: _engine.Pending) -> None:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        future: Future[Any] = Future(pending, self._backend._shared)
        future._when_settled(lambda: loop.call_soon_threadsafe(over.set))
        await over.wait()
        if not pending.wait_answer(0):  # it was cancelled, and its tree is on its way out
            await loop.run_in_executor(None, pending.wait_answer)

    async def cancel(self, call: int, attempt: int) -> None:
        """Kills a call's tree; what it was doing is told by `run`."""
        self._cancel((call, attempt))

    def _cancel(self, key: tuple[int, int]) -> None:
        if key in self._running:
            self._unwanted.add(key)
            pending = self._running[key]
            if pending is not None:
                pending.cancel()

    async def news(self) -> list[News]:
        """What no reply tells, as soon as there is any: calls that run, workers that are gone."""
        listener = self._listener
        while listener == self._listener:
            told = self._begun + self._arrivals.news()
            if told:
                self._begun = []
                return told
            self._woken.clear()
            await self._woken.wait()
        return []

    def _wake(self) -> None:
        """Called by threads of the engine's."""
        self._loop.call_soon_threadsafe(self._woken.set)

    def _dismiss(self) -> None:
        """Whoever waits in `news` is heard by nobody."""
        self._listener += 1
        self._woken.set()

    async def stop(self) -> list[News]:
        """Ends the engine, with all that it runs. Its last news."""
        self._dismiss()
        end = lambda: self._backend.shutdown(cancel_queued=True, kill_after=0.0)  # noqa: E731
        await asyncio.get_running_loop().run_in_executor(None, end)
        return self._begun + self._arrivals.news(last=True)
