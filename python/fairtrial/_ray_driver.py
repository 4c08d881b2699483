"""The driver of a Ray cluster: one thread that owns the table of tasks and the actors of the nodes.

It waits for one thing at a time, whoever tells it: the backend's users, Ray's replies, or the clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _engine
from ._ray_aside import Aside
from ._ray_member import Member
from ._ray_table import Table, Task, Unserved
from ._ray_workers import Exit, Started, Workers

if TYPE_CHECKING:
    from ._ray_cluster import Cluster

LOOK_EVERY_S = 5.0  # for nodes that came or went
STOP_PATIENCE_S = 5.0  # what was killed may take so long to say so
MOST_FAILED_STARTS = 3  # in a row, without an actor that is up
PLACE_PATIENCE_S = 5.0  # an actor that takes longer to start waits for a place, or may do so

_log = logging.getLogger("fairtrial")


@dataclass(frozen=True)
class Settings:
    """What a user asked for."""

    slots: int | None
    max_deliver: int
    blobs: str | None


@dataclass
class Parcel:
    """A call as it travels; kept until it is answered, in case it has to travel again."""

    envelope: bytes
    beside: list[bytes]
    directories: list[str]
    refusal: tuple[int, bytes, list[bytes]] | None = None  # the last one: attempt, envelope, what came beside it


@dataclass
class Ending:
    """What was said of the end."""

    kill_at: float | None = None
    given_up_at: float | None = None


@dataclass
class Driver:
    """Carries calls between a courier and a cluster, which it joins when there is a call."""

    courier: _engine.Courier
    settings: Settings
    join: Callable[[], Cluster]
    table: Table = field(init=False)
    workers: Workers = field(default_factory=Workers)
    aside: Aside = field(init=False)
    cluster: Cluster | None = None
    members: dict[str, Member] = field(default_factory=dict)
    parcels: dict[int, Parcel] = field(default_factory=dict)
    directories: dict[str, Any] = field(default_factory=dict)  # references to archives, by digest
    ending: Ending | None = None
    look_at: float = 0.0
    failed_starts: int = 0
    unserved: Unserved = field(default_factory=lambda: Unserved(PLACE_PATIENCE_S))
    degraded: set[str] = field(default_factory=set)  # mechanisms whose lack was told

    def __post_init__(self) -> None:
        self.table = Table(self.settings.max_deliver)
        note = self.courier.put
        self.aside = Aside(lambda error: note(("failed", error)))

    def run(self) -> None:
        """Until it is shut down."""
        try:
            while not self._is_over():
                self._hear(self.courier.next(self._patience()))
                self._keep_up()
        except BaseException:
            _log.exception("the driver of the Ray cluster failed")
        finally:
            self._leave()
            self.aside.end()
            self.courier.finish()

    def _is_over(self) -> bool:
        if self.ending is None:
            return False
        given_up = self.ending.given_up_at is not None and time.monotonic() >= self.ending.given_up_at
        return given_up or not self.table.tasks

    def _patience(self) -> float | None:
        """How long nothing may happen before the clock itself is news."""
        times = [self.table.next_overdue(), self.unserved.next_look()]
        times += [member.ask_at for member in self.members.values()]
        times += [self.look_at] if self.cluster is not None else []
        times += [self.ending.kill_at, self.ending.given_up_at] if self.ending is not None else []
        known = [at for at in times if at is not None]
        return max(min(known) - time.monotonic(), 0.0) if known else None

    # -- what is heard

    def _hear(self, news: Any) -> None:
        if news is None:
            return
        handler: Callable[..., None] = getattr(self, "_on_" + news[0])
        handler(*news[1:])

    def _on_failed(self, error: BaseException) -> None:
        raise error

    def _on_run(self, call: int, queue_timeout_s: float | None, alone: bool) -> None:
        self.table.submit(call, alone, time.monotonic(), queue_timeout_s)

    def _on_cancel(self, call: int) -> None:
        task = self.table.tasks.get(call)
        if task is not None:
            self._cancel(task)

    def _on_shutdown(self, cancel_queued: bool, kill_after: float | None) -> None:
        self.ending = self.ending or Ending()
        if cancel_queued:
            for task in self.table.queued():
                self._cancel(task)
        if kill_after is not None:
            at = time.monotonic() + kill_after
            self.ending.kill_at = at if self.ending.kill_at is None else min(at, self.ending.kill_at)

    def _on_ready(self, member: Member, future: Any) -> None:
        if self.members.get(member.name) is not member:
            return  # of an actor that was given up
        member.asked = False
        error = future.exception()
        if error is None:
            self._take_up(member, *future.result())
        elif self.cluster is not None and self.cluster.is_away_only(error):
            member.ask_later()
        else:
            _log.warning("the actor of node %s is gone: %s", member.name, error)
            self._forget(member.name)
            self.failed_starts += 1
            if self.failed_starts >= MOST_FAILED_STARTS and not any(node.is_up for node in self.table.nodes.values()):
                self._fail_all(f"no actor can be started: {error}")

    def _take_up(self, member: Member, auth_mode: str, workers: list[str]) -> None:
        assert self.cluster is not None, "whose actor answers"
        try:
            self.cluster.check_node(auth_mode)
        except _engine.EngineError as error:
            self._fail_all(f"cannot use the Ray cluster: {error}")
            self._leave()
        else:
            self.failed_starts = 0
            self.table.set_up(member.name, True)
            known = set(self.workers.of_node(member.name))
            for worker in known - set(workers):  # of an actor that died, or told in vain
                self._on_worker_exit(member.name, worker, "crashed")
            member.listen()

    def _on_reply(self, name: str, call: int, attempt: int, future: Any) -> None:
        error = future.exception()
        if error is not None:
            self._suspect(name)
        task = self.table.returned(call, attempt)
        kind, envelope, beside, worker = ("lost", b"", [], None) if error is not None else future.result()
        if worker is not None:
            self._worker_served(name, task, *worker)
        self._tell_exits(self.workers.heard_of((call, attempt)))
        if task is None:
            return  # an older attempt's
        if error is not None:
            return self._lost(task, f"the actor of node {name} was lost: {type(error).__name__}")
        if kind == "raised":
            self._lost(task, envelope.decode(errors="replace"))
        elif kind == "failed" and not task.cancelled and self.table.try_again(task):
            pass  # the engine of that node could not, and counts (CL-26)
        elif kind == "refused" and not task.cancelled:
            self._refused(task, envelope, beside)
        else:
            self._answer(task, attempt, envelope, beside)

    def _on_news(self, member: Member, future: Any) -> None:
        """What no reply tells."""
        if self.members.get(member.name) is not member:
            return
        member.listened_to = False
        if future.exception() is None:
            self._hear_all(member.name, future.result())
            member.listen()
        elif self.cluster is not None and self.cluster.is_there():
            self._suspect(member.name)

    def _hear_all(self, name: str, news: list[Any]) -> None:
        for kind, *words in news:
            handler: Callable[..., None] = getattr(self, "_on_" + kind)
            handler(name, *words)

    def _on_began(self, name: str, call: int, attempt: int, worker: Started) -> None:
        task = self.table.current(call, attempt)
        if task is not None:
            task.worker = worker[0]
            self._tell_began(name, task, worker)
            self._tell_exits(self.workers.heard_of((call, attempt), worker[0]))

    def _on_worker_exit(self, name: str, worker: str, reason: str) -> None:
        behind = self.table.perhaps_on(name, worker)
        self._tell_exits(self.workers.exited(worker, reason, behind))

    def _on_degraded(self, name: str, level: str, mechanism: str, reason: str) -> None:
        if mechanism not in self.degraded:
            self.degraded.add(mechanism)
            self.courier.degraded(level, mechanism, f"on node {name}: {reason}")

    # -- workers

    def _worker_served(self, name: str, task: Task | None, worker: Started, exit_reason: str | None) -> None:
        """A call is over. If it was an older attempt's, only the end of who was told of is told."""
        if task is not None:
            self._tell_began(name, task, worker)
        if exit_reason is not None:
            self._tell_exits(self.workers.exited(worker[0], exit_reason))

    def _tell_began(self, name: str, task: Task, worker: Started) -> None:
        if self.workers.is_new(name, worker[0]):
            self.courier.worker_started(*worker)
        self.courier.began(task.call, worker[0])

    def _tell_exits(self, exits: list[Exit]) -> None:
        for worker, reason in exits:
            self.courier.worker_exited(worker, reason)

    # -- tasks

    def _lost(self, task: Task, why: str) -> None:
        """Whoever had it does not say what became of it (CL-66)."""
        if task.cancelled:
            self._end(task)
            self.courier.call_off(task.call, False)
        elif not self.table.try_again(task):
            self._end(task)
            self.courier.fail(task.call, True, f"given up after {task.deliveries} attempts: {why}")

    def _refused(self, task: Task, envelope: bytes, beside: list[bytes]) -> None:
        """Another node may have what it needs (CL-22)."""
        reason = self.courier.reason((task.call, task.attempt), envelope, beside)
        self.parcels[task.call].refusal = (task.attempt, envelope, beside)
        if not self.table.try_elsewhere(task, reason):
            self._end_refused(task)

    def _end_refused(self, task: Task) -> None:
        """No node can run it. With the reasons of all, if there are several."""
        refusal, refusals = self.parcels[task.call].refusal, sorted(task.refusals.items())
        assert refusal is not None, "every refusal is kept"
        reasons = "; ".join(f"node {node}: {reason}" for node, reason in refusals) if len(refusals) > 1 else None
        self._answer(task, *refusal, reasons)

    def _answer(
        self, task: Task, attempt: int, envelope: bytes, beside: list[bytes], problem: str | None = None
    ) -> None:
        self._end(task)
        key, waited_s = (task.call, attempt), task.sent_at - task.submitted_at
        self._with_store(lambda: self.courier.answer(key, envelope, beside, waited_s, problem))

    def _with_store(self, work: Callable[[], object]) -> None:
        """Does what may have to wait for the store, if there is one: cancels do not wait for it (CL-68)."""
        if self.settings.blobs is None:
            work()
        else:
            self.aside.do(work)

    def _cancel(self, task: Task) -> None:
        task.cancelled = True
        if task.node is None or task.call not in self.parcels:  # it waits, or is packed for the first time
            self.table.returned(task.call, task.attempt)
            self._end(task)
            self.courier.call_off(task.call, False)
        elif task.node in self.members:
            self.members[task.node].cancel(task.call, task.attempt)

    def _end(self, task: Task) -> None:
        self.table.end(task)
        self.parcels.pop(task.call, None)

    # -- what is done of itself

    def _keep_up(self) -> None:
        now = time.monotonic()
        self._wind_down(now)
        for task in self.table.overdue(now):
            self._end(task)
            self.courier.call_off(task.call, True)
        if self.table.tasks and self.cluster is None and not self._joined():
            return
        if self.cluster is not None and now >= self.look_at:
            self._look_for_nodes()
        for member in self.members.values():
            if member.ask_at is not None and now >= member.ask_at:
                member.ask_ready(self.table.attempts_of(member.name))
        if self.unserved.look(now, bool(self.table.tasks) and not self.table.is_served()):
            self._say_that_calls_wait()
        while (startable := self.table.start(time.monotonic())) is not None:
            self._start(startable)

    def _wind_down(self, now: float) -> None:
        ending = self.ending
        if ending is not None and ending.kill_at is not None and now >= ending.kill_at:
            ending.kill_at, ending.given_up_at = None, now + STOP_PATIENCE_S
            for task in list(self.table.tasks.values()):
                self._cancel(task)

    def _joined(self) -> bool:
        try:
            self.cluster, self.look_at = self.join(), 0.0
            return True
        except Exception as error:
            self._fail_all(f"cannot use the Ray cluster: {error}")
            return False

    def _fail_all(self, why: str) -> None:
        for task in list(self.table.tasks.values()):
            self.table.returned(task.call, task.attempt)
            self._end(task)
            self.courier.fail(task.call, False, why)

    def _start(self, task: Task) -> None:
        call, attempt = task.call, task.attempt
        if call in self.parcels:
            self._send(task)
        else:
            note = self._hear if self.settings.blobs is None else self.courier.put
            self._with_store(lambda: note(("packed", call, attempt, self.courier.pack(call))))

    def _on_packed(self, call: int, attempt: int, packed: tuple[bytes, list[bytes], list[str]] | None) -> None:
        task = self.table.current(call, attempt)
        if task is None:
            return  # it was answered meanwhile
        if packed is None:  # and so it was now: it cannot be packed
            self.table.returned(call, attempt)
            self._end(task)
        else:
            self.parcels[call] = Parcel(*packed)
            self._send(task)

    def _send(self, task: Task) -> None:
        if task.node not in self.members:  # it went while this was packed
            return self.table.take_back(task)
        parcel = self.parcels[task.call]
        directories = {digest: [self._archive(digest)] for digest in parcel.directories}
        self.members[task.node].run(task.call, task.attempt, parcel.envelope, directories, *parcel.beside)

    def _archive(self, digest: str) -> Any:
        """A reference to a packed directory: many calls share one."""
        assert self.cluster is not None, "only who joined sends"
        if digest not in self.directories:
            self.directories[digest] = self.cluster.put(self.courier.directory(digest))
        return self.directories[digest]

    # -- nodes

    def _look_for_nodes(self) -> None:
        assert self.cluster is not None, "only who joined looks"
        self.look_at = time.monotonic() + LOOK_EVERY_S
        found = self.cluster.nodes(self.settings.slots)
        for name in self.members.keys() - found.keys():
            self._forget(name)
        for name, slots in found.items():
            if name not in self.members:
                actor = self.cluster.start_actor(name, slots, self.settings.blobs)
                self.members[name] = member = Member(name, actor, self.courier.put)
                self.table.add_node(name, slots)
                member.ask_ready(self.table.attempts_of(name))

    def _say_that_calls_wait(self) -> None:
        assert self.cluster is not None, "only who joined waits"
        found = self.cluster.nodes(self.settings.slots)
        if found:
            said = (
                "calls wait for a place on the Ray cluster: %d of %d processors are free, and a node's actor takes %d"
            )
            _log.warning(said, *self.cluster.processors(), min(found.values()))
        else:
            _log.warning("no node of the Ray cluster has a processor for calls; they wait")

    def _suspect(self, name: str) -> None:
        """Its actor may be gone: it is given nothing until it says otherwise, so that no attempt is wasted on it."""
        self.table.set_up(name, False)
        if name in self.members:
            self.members[name].ask_later()

    def _forget(self, name: str) -> None:
        self.members.pop(name, None)
        self.table.remove_node(name)
        self._tell_exits(self.workers.node_is_gone(name, "crashed"))
        for task in self.table.refused_by_all():
            self._end_refused(task)

    def _leave(self) -> None:
        actors = {name: member.actor for name, member in self.members.items()}
        self.members.clear()
        cluster, self.cluster = self.cluster, None
        self.directories.clear()
        if cluster is not None:
            try:
                last_news = cluster.leave(actors)
                self._hear_news_on_the_way()
                for name, news in last_news.items():
                    self._hear_all(name, news)
            except Exception as error:
                _log.warning("leaving the Ray cluster: %s", error)
        for name in actors:
            self.table.remove_node(name)
            self._tell_exits(self.workers.node_is_gone(name, "shutdown"))

    def _hear_news_on_the_way(self) -> None:
        """Those that came while the actors ended; all else is left as it was."""
        others = []
        while (note := self.courier.next(0.0)) is not None:
            if note[0] == "news" and note[2].exception() is None:
                self._hear_all(note[1].name, note[2].result())
            else:
                others.append(note)
        for note in others:
            self.courier.put(note)
