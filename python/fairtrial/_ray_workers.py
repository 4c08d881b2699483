"""Workers of the nodes that calls began on. Decides what is told of them, and when; tells nobody."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Attempt = tuple[int, int]  # a call, and which try of it
# A worker: its name, its process, its zygote's threads, and the descriptors of preloads that it does not have.
Started = tuple[str, int, "int | None", dict[int, str]]
Exit = tuple[str, str]  # a worker's name, and why it ended


@dataclass
class HeldExit:
    """An exit that overtook what else there is to tell of its worker, perhaps."""

    worker: str
    reason: str
    behind: set[Attempt]  # those that may have begun on it, and whose word is on its way


class Workers:
    """Which workers were told of. One thread uses it."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}  # whose they are
        self._held: list[HeldExit] = []

    def is_new(self, node: str, worker: str) -> bool:
        """A call began on a worker: whether its start is to be told now."""
        if worker in self._nodes:
            return False
        self._nodes[worker] = node
        return True

    def exited(self, worker: str, reason: str, behind: Iterable[Attempt] = ()) -> list[Exit]:
        """A worker is gone: what is to be told now. Nothing is told of who was never told of."""
        self._held = [held for held in self._held if held.worker != worker]
        waited_for = set(behind)
        if waited_for:
            self._held.append(HeldExit(worker, reason, waited_for))
            return []
        return [(worker, reason)] if self._nodes.pop(worker, None) is not None else []

    def heard_of(self, attempt: Attempt, worker: str | None = None) -> list[Exit]:
        """An attempt is over, or runs on a worker and thus on no other: exits that nothing holds back any more."""
        told = []
        for held in list(self._held):
            if held.worker != worker:
                held.behind.discard(attempt)
                if not held.behind:
                    told += self.exited(held.worker, held.reason)
        return told

    def of_node(self, node: str) -> list[str]:
        """Those of a node that are not known to be gone."""
        held = {exit.worker for exit in self._held}
        return [worker for worker, its_node in self._nodes.items() if its_node == node and worker not in held]

    def node_is_gone(self, node: str, reason: str) -> list[Exit]:
        """Whatever ran there is gone with it."""
        reasons = {held.worker: held.reason for held in self._held}
        gone = [worker for worker, its_node in self._nodes.items() if its_node == node]
        return [exit for worker in gone for exit in self.exited(worker, reasons.get(worker, reason))]
