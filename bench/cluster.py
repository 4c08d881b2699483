"""Calls by two agents of one slot over a Redis server of the bench's own, beside this machine's engine and plain Ray.

They take turns: calls one after the other, by the Python interfaces, and many, by `fairtrial batch`; Ray's are tasks,
one for each call. Then ten times as many calls, for memory: of the coordinator by `fairtrial batch`, of the server with
a queue that is full before the first agent comes. Loopback, append-only on, `reuse`, no-op calls.
"""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time as clock
from pathlib import Path

from contender import Peer, high_water, interval, time, times

ROOT = Path(__file__).resolve().parent.parent
# The cluster that `make chaos` kills is the one that is measured.
sys.path.insert(0, str(ROOT / ".ci"))

from private_cluster import Cluster  # noqa: E402

BACKENDS = {"agents": "redis-backend", "local": "local-backend", "ray": "ray"}
AGENTS = 2
POLL_S = 0.02
MAX_QUEUE = 10_000
# As many calls as the queue takes wait on the server, and some more for room there.
FULL_QUEUE = """\
import collections, sys, fairtrial as ft
url, tasks, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
call = ft.Call(source="def f(): pass", function="f", isolation="reuse", sandbox="none")
with ft.RedisBackend(url, queue="full", max_queue=most) as backend:
    waiting = collections.deque()
    for _ in range(tasks):
        waiting.append(backend.submit(call))
        if len(waiting) > most + 1_000:
            waiting.popleft().result()
    while waiting:
        waiting.popleft().result()
"""


def measure(options):
    """Seconds of calls by who runs them, one after the other and many at once; and peaks of memory, by tasks."""
    calls = 2_000 if options.quick else 20_000
    few = 1_000 if options.quick else 10_000
    with Cluster(binary(), port=free_port()) as cluster:
        cluster.start_agents(AGENTS)
        os.environ["FAIRTRIAL_BENCH_REDIS"] = cluster.url()
        samples = take_turns(cluster, calls, min(options.rounds, 5))
    most = MAX_QUEUE * few // 10_000
    return samples, {tasks: (server_memory(tasks, most), coordinator_memory(tasks)) for tasks in (few, 10 * few)}


def take_turns(cluster, calls, rounds):
    samples = {who: {"warm": [], "many": []} for who in BACKENDS}
    file = write_calls(cluster, calls)
    # Each ends before the next begins: two processors are soon full.
    for number in range(rounds):
        order = list(BACKENDS)
        for who in order[number % 3 :] + order[: number % 3]:
            if who == "ray" and importlib.util.find_spec("ray") is None:
                continue
            peer = Peer([sys.executable, str(ROOT / "bench" / "pools.py"), BACKENDS[who]])
            try:
                samples[who]["warm"] += peer.ask("warm 500")
                if who == "ray":
                    samples[who]["many"] += [seconds / calls for seconds in peer.ask("throughput %d" % calls)]
            finally:
                peer.end()
            if who != "ray":
                backend = ["--backend", "@" + cluster.url_file] if who == "agents" else ["-j", str(AGENTS)]
                samples[who]["many"].append(batch(cluster, file, backend)[0] / calls)
        print("cluster: round %d of %d" % (number + 1, rounds), file=sys.stderr, flush=True)
    return samples


def server_memory(tasks, most):
    """KiB at most of a new server over so many calls, when as many wait there as may."""
    with Cluster(binary(), port=free_port()) as cluster:
        words = [sys.executable, "-c", FULL_QUEUE, cluster.url(), str(tasks), str(most)]
        coordinator = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        try:
            cluster.until("the queue is full", lambda: cluster.number("full", "queued") >= most)
            cluster.start_agents(AGENTS)
            if coordinator.wait():
                sys.exit("bench: the coordinator ended with exit code %d" % coordinator.returncode)
        finally:
            coordinator.kill()
            coordinator.wait()
        return high_water(cluster.server.pid)


def coordinator_memory(tasks):
    """KiB at most of `fairtrial batch` over so many calls."""
    with Cluster(binary(), port=free_port()) as cluster:
        cluster.start_agents(AGENTS)
        _, peak = batch(cluster, write_calls(cluster, tasks), ["--backend", "@" + cluster.url_file])
        return peak


def batch(cluster, calls, backend):
    """Seconds of `fairtrial batch`, from its start to its end, and the most memory that it had."""
    words = [cluster.binary, "batch", calls, "--out", cluster.directory + "/out", "--no-progress", *backend]
    peak, began = 0, clock.monotonic()
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, high_water(process.pid))
        try:
            process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            pass
    if process.returncode:
        sys.exit("bench: `fairtrial batch` ended with exit code %d" % process.returncode)
    return clock.monotonic() - began, peak


def write_calls(cluster, many):
    call = {"source": "def f(): pass", "function": "f", "isolation": "reuse", "sandbox": "none"}
    return cluster.write("calls.jsonl", "".join(json.dumps({"id": n, **call}) + "\n" for n in range(many)))


def binary():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(target / "release" / "fairtrial")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


# ---- reporting --------------------------------------------------------------------------------------------------


def report(measured):
    """Lines of Markdown."""
    samples, peaks = measured
    lines = [
        "",
        "## Clusters",
        "",
        "%d agents of one slot and an append-only server on the loopback, beside this machine's engine with %d workers"
        % (AGENTS, AGENTS),
        "and plain Ray with a task for each call, in turns. Calls one at a time are of the Python interfaces; many are",
        "of `fairtrial batch`, its start counted, and of Ray's. All of a contender's processes share the processors.",
        "",
        "| id | measure | by agents | local | Ray | figure | target | held |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cells in rows(samples, peaks):
        lines.append("| %s |" % " | ".join(cells))
    return lines


def rows(samples, peaks):
    agents, local, ray = (samples[who] for who in ("agents", "local", "ray"))
    more = interval(agents["warm"])[0] - interval(local["warm"])[0]
    shown = [times(interval(each["warm"])) if each["warm"] else "not installed" for each in (agents, local, ray)]
    yield "CL-77", "one call at a time", *shown, time(more) + " more", "at most 1.5 ms more", yes(more <= 1.5e-3)
    rates = [1 / interval(each["many"])[0] if each["many"] else None for each in (agents, local, ray)]
    shown = ["%s a second" % format(round(rate), ",") if rate else "not installed" for rate in rates]
    yield "CL-78", "many calls", *shown, "", "at least 4,000 a second", yes(rates[0] >= 4_000)
    if ray["many"]:
        ratio, low, high = interval(ray["many"], agents["many"])
        figure = "%.2f (%.2f to %.2f)" % (ratio, low, high)
        yield "CL-78", "the same, by agents / Ray", "", "", "", figure, "at least 2", yes(ratio >= 2)
    few, many = sorted(peaks)
    for place, who in enumerate(("server", "coordinator")):
        measured = "peak memory of the %s, %s calls and %s" % (who, format(many, ","), format(few, ","))
        now, before = peaks[many][place] / 1024, peaks[few][place] / 1024
        figure = "%.1f MiB / %.1f MiB = %.2f" % (now, before, now / before)
        yield "CL-80", measured, "", "", "", figure, "at most 1.1", yes(now <= 1.1 * before)


def yes(holds):
    return "yes" if holds else "**no**"


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description="only the clusters, printed")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--rounds", type=int, default=5, help="turns that each contender takes [default: 5]")
    print("\n".join(report(measure(parser.parse_args()))))
