"""The actor of a node: the local engine behind a few messages of bytes. Unpickles nothing of a call's."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from . import _engine
from .backends import LocalBackend
from .futures import Future

Reply = tuple[str, bytes, list[bytes]]


class NodeActor:
    """Runs parcels on the node it was placed on. Its driver gives it as many at a time as it has slots."""

    def __init__(self, slots: int, node: str, blobs: str | None) -> None:
        _engine.become_undumpable()
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray's: so many threads for the actor, not for each of its calls
        self._backend = LocalBackend(slots, node_id=node)
        self._arrivals = _engine.Arrivals(blobs, node)
        self._running: dict[tuple[int, int], _engine.Pending | None] = {}
        self._unwanted: set[tuple[int, int]] = set()

    async def ready(self, known: list[tuple[int, int]]) -> str:
        """How its node lets others in, once it can run calls. What its driver does not know it has, is killed."""
        for attempt in set(self._running) - set(known):
            self._cancel(attempt)
        return os.environ.get("RAY_AUTH_MODE", "")

    async def run(
        self, call: int, attempt: int, envelope: bytes, directories: dict[str, list[Any]], *beside: bytes
    ) -> Reply:
        """Runs a parcel to its end. A directory comes as a reference, in a list so that Ray leaves it one."""
        key = (call, attempt)
        self._running[key] = None
        try:
            return await self._run(key, envelope, directories, list(beside))
        except Exception as error:  # as text: Ray would pickle it
            return "raised", f"{type(error).__name__}: {error}".encode(errors="replace"), []
        finally:
            self._running.pop(key, None)
            self._unwanted.discard(key)

    async def _run(
        self, key: tuple[int, int], envelope: bytes, directories: dict[str, list[Any]], beside: list[bytes]
    ) -> Reply:
        loop = asyncio.get_running_loop()
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
            await self._ended(pending)
        return await loop.run_in_executor(None, self._arrivals.reply, arrived, pending)

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

    async def stop(self) -> None:
        """Ends the engine, with all that it runs."""
        end = lambda: self._backend.shutdown(cancel_queued=True, kill_after=0.0)  # noqa: E731
        await asyncio.get_running_loop().run_in_executor(None, end)
