"""Ray itself, as a driver needs it: joined, looked at, left."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ._engine import EngineError
from ._ray_actor import NodeActor

CALLS_BESIDE_RUN = 100  # `ready`, `cancel` and `stop` are answered whatever runs
STOP_PATIENCE_S = 5.0
CONNECT_PATIENCE_S = 5.0

_lock = threading.Lock()
_users = 0  # of the instance of Ray that was started here


class Cluster:
    """A cluster that this process has joined, or has started for itself on this machine."""

    def __init__(self, address: str | None, slots: int | None) -> None:
        self._is_ours = _join(address, slots)
        try:
            refuse_strangers(self._addresses(), os.environ.get("RAY_AUTH_MODE", ""))
        except BaseException:
            self._let_go()
            raise

    def check_node(self, auth_mode: str) -> None:
        """Refuses a node that lets everybody in, whatever this process shows it."""
        refuse_strangers(self._addresses(), auth_mode)

    def nodes(self, slots: int | None) -> dict[str, int]:
        """Nodes that can run calls, and how many at a time each."""
        found = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]}
        return {name: min(slots or cpus, cpus) for name, cpus in found.items() if cpus > 0}

    def start_actor(self, node: str, slots: int, blobs: str | None) -> Any:
        """The actor of a node, on that node and no other (CL-65)."""
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        actor: Any = ray.remote(NodeActor)
        options = actor.options(
            num_cpus=slots,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=slots + CALLS_BESIDE_RUN,
            scheduling_strategy=there,
        )
        return options.remote(slots, node, blobs)

    def put(self, data: bytes) -> Any:
        return ray.put(data)

    def is_away_only(self, error: BaseException) -> bool:
        """Whether an actor may come back by itself."""
        return isinstance(error, ActorUnavailableError)

    def is_there(self) -> bool:
        """Whether this process is still part of it. A Ray that was left is asked nothing: it would start anew."""
        return bool(ray.is_initialized())

    def processors(self) -> tuple[int, int]:
        """How many processors of it nobody has taken, and how many there are."""
        return int(ray.available_resources().get("CPU", 0)), int(ray.cluster_resources().get("CPU", 0))

    def leave(self, actors: dict[str, Any]) -> dict[str, list[Any]]:
        """Ends the actors of these nodes, with all that they run. What they have to tell at the end."""
        last_news: dict[str, list[Any]] = {}
        try:
            if ray.is_initialized():
                stopping = {actor.stop.remote(): name for name, actor in actors.items()}
                waited = {"num_returns": len(stopping), "timeout": STOP_PATIENCE_S}
                stopped = ray.wait(list(stopping), **waited)[0] if stopping else []
                last_news = {stopping[answer]: _had(answer) for answer in stopped}
                for actor in actors.values():
                    ray.kill(actor)
        except RayError:
            pass  # it went before us, and took its actors with it
        finally:
            self._let_go()
        return last_news

    def _let_go(self) -> None:
        global _users
        if self._is_ours:
            with _lock:
                _users -= 1
                if _users == 0 and ray.is_initialized():
                    ray.shutdown()

    def _addresses(self) -> list[str]:
        return [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]


def _had(answer: Any) -> list[Any]:
    try:
        told: list[Any] = ray.get(answer)
        return told
    except RayError:
        return []  # an actor that died


def _join(address: str | None, slots: int | None) -> bool:
    """Whether the instance of Ray that is used now was started here, for as long as somebody uses it."""
    global _users
    with _lock:
        if ray.is_initialized():
            _users += _users > 0
            return _users > 0
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        address = address or os.environ.get("RAY_ADDRESS")
        if address not in (None, "", "local"):
            _reach(address)
            ray.init(address=address, **quiet)
        else:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked for its being reported
            cpus = max(slots or 0, len(os.sched_getaffinity(0)))
            # From 2.59 on Ray listens on the machine's own address all the same, and asks for a token.
            ours: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            ray.init(address="local", num_cpus=cpus, **ours, **quiet)
        _users = 1
        return True


def _reach(address: str) -> None:
    """Refuses a place where nobody listens: Ray itself goes on asking there, and says nothing."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return  # `auto`, or what Ray itself refuses
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        raise EngineError(f"cannot reach `{address}`: {error}") from error


def refuse_strangers(addresses: list[str], auth_mode: str) -> None:
    """Whoever reaches a cluster runs what they like on it; beyond this machine that takes a token (CL-68)."""
    beyond = sorted(address for address in addresses if not ipaddress.ip_address(address).is_loopback)
    if beyond and auth_mode.strip().lower() in ("", "disabled"):
        raise EngineError(
            f"it is reached at {beyond[0]} by whoever comes: set RAY_AUTH_MODE=token for its nodes and for this process"
        )
