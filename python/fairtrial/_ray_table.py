"""The tasks of a driver, and who has them. Decides; starts nothing and waits for nothing."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile


@dataclass(eq=False)  # each is itself: a queue is searched for it
class Task:
    """A call that is not over."""

    call: int
    alone: bool  # it takes all of a node's slots (CL-69)
    submitted_at: float
    give_up_at: float | None  # unless it has begun by then
    attempt: int = 0  # the latest; answers of older ones are nobody's
    deliveries: int = 0  # attempts that count, as losses do
    node: str | None = None  # where it runs
    worker: str | None = None  # on which it is known to run
    sent_at: float = 0.0
    refusals: dict[str, str] = field(default_factory=dict)  # why, by node
    cancelled: bool = False


@dataclass
class Node:
    """A node as the table sees it."""

    slots: int
    free: int
    is_up: bool = False


@dataclass
class Unserved:
    """How long tasks have waited because no node that is up takes them, and whether that was said (CL-38)."""

    patience_s: float  # nodes may take so long before it is worth a word
    since: float | None = None
    is_said: bool = False

    def look(self, now: float, waits: bool) -> bool:
        """Whether to say now that they wait: once, until they do not."""
        if not waits:
            self.since, self.is_said = None, False
            return False
        self.since = now if self.since is None else self.since
        say = not self.is_said and now >= self.since + self.patience_s
        self.is_said |= say
        return say

    def next_look(self) -> float | None:
        return None if self.since is None or self.is_said else self.since + self.patience_s


class Table:
    """Tasks and nodes. One thread uses it."""

    def __init__(self, max_deliver: int) -> None:
        self.max_deliver = max_deliver
        self.tasks: dict[int, Task] = {}
        self.nodes: dict[str, Node] = {}
        self._queue: deque[Task] = deque()
        self._times: list[tuple[float, int]] = []  # when to give up which call, soonest first

    # -- nodes

    def add_node(self, name: str, slots: int) -> None:
        """A node that is not up yet."""
        self.nodes[name] = Node(slots, slots)

    def remove_node(self, name: str) -> None:
        """A node that is gone for good. What it had is told by itself."""
        self.nodes.pop(name, None)

    def set_up(self, name: str, is_up: bool) -> None:
        """Whether a node is given tasks."""
        if name in self.nodes:
            self.nodes[name].is_up = is_up

    # -- tasks

    def submit(self, call: int, alone: bool, now: float, queue_timeout_s: float | None) -> None:
        give_up_at = None if queue_timeout_s is None else now + queue_timeout_s
        task = Task(call, alone, now, give_up_at)
        self.tasks[call] = task
        self._queue.append(task)
        self._note_time(task)

    def start(self, now: float) -> Task | None:
        """The next task, on the node that it is to be sent to; None if there is none or no room for any."""
        room = {name: node for name, node in self.nodes.items() if node.is_up}
        for task in self._queue:
            if not any(node.free for node in room.values()):
                return None
            open_to = {name: node for name, node in room.items() if name not in task.refusals}
            fitting = [name for name, node in open_to.items() if node.free >= (node.slots if task.alone else 1)]
            if fitting:
                self._queue.remove(task)
                return self._begin(task, max(fitting, key=lambda name: open_to[name].free), now)
            if task.alone and open_to:
                # The node that is free soonest starts nothing else meanwhile, or it would never be.
                del room[max(open_to, key=lambda name: open_to[name].free)]
        return None

    def _begin(self, task: Task, name: str, now: float) -> Task:
        node = self.nodes[name]
        node.free -= node.slots if task.alone else 1
        task.node, task.worker, task.sent_at = name, None, now
        task.attempt += 1
        task.deliveries += 1
        return task

    def returned(self, call: int, attempt: int) -> Task | None:
        """Something came back of a task, whose slots are free now; None if the attempt is not the latest."""
        task = self.current(call, attempt)
        if task is None or task.node is None:
            return None
        node = self.nodes.get(task.node)
        if node is not None:
            node.free += node.slots if task.alone else 1
        return task

    def try_again(self, task: Task) -> bool:
        """Queues a returned task before all others; False if it was delivered too often."""
        if task.deliveries >= self.max_deliver:
            return False
        self._requeue(task)
        return True

    def try_elsewhere(self, task: Task, reason: str) -> bool:
        """Queues a task that its node refused, which does not count; False if every node has refused it."""
        if task.node is not None:
            task.refusals[task.node] = reason
        if not self.nodes.keys() - task.refusals.keys():
            return False
        task.deliveries -= 1
        self._requeue(task)
        return True

    def take_back(self, task: Task) -> None:
        """Queues a task that was sent to nobody, which does not count."""
        self.returned(task.call, task.attempt)
        task.deliveries -= 1
        self._requeue(task)

    def _requeue(self, task: Task) -> None:
        task.node = None
        self._queue.appendleft(task)
        self._note_time(task)

    def _note_time(self, task: Task) -> None:
        if task.give_up_at is not None:
            heapq.heappush(self._times, (task.give_up_at, task.call))

    def end(self, task: Task) -> None:
        """It was answered."""
        self.tasks.pop(task.call, None)
        if task.node is None and task in self._queue:
            self._queue.remove(task)

    # -- what is asked of it

    def queued(self) -> list[Task]:
        return list(self._queue)

    def running(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.node is not None]

    def current(self, call: int, attempt: int) -> Task | None:
        """The task that runs as this attempt; None if that is not its latest."""
        task = self.tasks.get(call)
        return task if task is not None and task.node is not None and task.attempt == attempt else None

    def attempts_of(self, node: str) -> list[tuple[int, int]]:
        """What a node has."""
        return [(task.call, task.attempt) for task in self.running() if task.node == node]

    def perhaps_on(self, node: str, worker: str) -> list[tuple[int, int]]:
        """Attempts of a node that may have begun on that worker of it."""
        return [
            (task.call, task.attempt) for task in self.running() if task.node == node and task.worker in (None, worker)
        ]

    def refused_by_all(self) -> list[Task]:
        """Queued tasks that every node there is has refused, as others went."""
        return [task for task in self._queue if self.nodes and not self.nodes.keys() - task.refusals.keys()]

    def is_served(self) -> bool:
        """Whether each task has a node that is up and did not refuse it."""
        up = {name for name, node in self.nodes.items() if node.is_up}
        came_back = takewhile(lambda task: task.attempt > 0, self._queue)  # they stand before all others
        return bool(up) and all(up - task.refusals.keys() for task in came_back)

    def overdue(self, now: float) -> list[Task]:
        """Queued tasks that waited too long. One that ran before has begun, and waits as long as it takes."""
        first = self.next_overdue()
        if first is None or first > now:
            return []  # asked at each turn, and a queue may be long
        return [task for task in self._queue if _waits(task) and task.give_up_at is not None and task.give_up_at <= now]

    def next_overdue(self) -> float | None:
        while self._times:
            give_up_at, call = self._times[0]
            task = self.tasks.get(call)
            if task is not None and task.node is None and _waits(task):
                return give_up_at
            heapq.heappop(self._times)  # it has begun, or is over
        return None


def _waits(task: Task) -> bool:
    return task.deliveries == 0
