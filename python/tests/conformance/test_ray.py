"""`RayBackend` with real Ray: what the suite for all backends does not ask for (CL-65 to CL-69)."""

import logging
import os
import signal
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import WAIT_S, Gate, is_gone, wait_until
from ray_programs import needs_ray, program

import fairtrial as ft

ONE = "def f(): return 1"
# The worker's parent is the launcher, and the launcher's is the actor.
ACTOR = (
    "import os, signal, time\n"
    "def actor():\n"
    "    stat = open(f'/proc/{os.getppid()}/stat').read()\n"
    "    return int(stat.rpartition(')')[2].split()[1])\n"
    "def note(place):\n"
    "    with open(place, 'a') as file: file.write(f'{os.getpid()} {actor()}\\n')\n"
)
KILLS = ACTOR + "def f(place):\n    note(place)\n    os.kill(actor(), signal.SIGKILL)\n    time.sleep(600)\n"
KILLS_ONCE = ACTOR + (
    "def f(place):\n"
    "    note(place)\n"
    "    if len(open(place).readlines()) == 1:\n"
    "        os.kill(actor(), signal.SIGKILL)\n"
    "        time.sleep(600)\n"
    "    return 'at last'\n"
)


@pytest.fixture(scope="module")
def instance():
    """An instance of Ray on this machine, unless the suite has one."""
    ray = needs_ray()
    ours = not ray.is_initialized()
    if ours:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.WARNING}
        ray.init(address="local", num_cpus=16, _node_ip_address="127.0.0.1", **quiet)
    yield
    if ours:
        ray.shutdown()


@pytest.fixture
def own(instance):
    with ft.ray.RayBackend(slots=2) as backend:
        yield backend


def test_without_ray_it_says_what_to_install():
    """CL-65"""
    ended = program(
        """
        import sys
        sys.modules["ray"] = None
        import fairtrial as ft
        try:
            ft.ray
        except ImportError as error:
            print(error)
        """
    )
    assert "fairtrial[ray]" in ended.stdout, ended.stderr


def test_bad_options_are_refused_when_it_is_made():
    """CL-65"""
    needs_ray()
    for options in ({"slots": 0}, {"max_deliver": 0}, {"classes": ("gpu",)}, {"classes": ()}, {"blobs": "mail://x"}):
        with pytest.raises(ValueError):
            ft.ray.RayBackend(**options)
    with pytest.raises(TypeError):
        ft.ray.RayBackend(slot=2)
    with pytest.raises(ValueError, match="classes"):
        ft.ray.RayBackend().submit(ft.Call(source=ONE, function="f"), cls="timing")


def test_a_call_whose_actor_is_lost_is_run_again(own, tmp_path):
    """CL-66"""
    place = tmp_path / "runs"
    outcome = own.execute(ft.Call(source=KILLS_ONCE, function="f", args=[str(place)]))
    assert (outcome.verdict, outcome.value) == ("ok", "at last")
    runs = place.read_text().splitlines()
    assert len(runs) == 2 and len(set(runs)) == 2


def test_ray_itself_starts_a_lost_actor_again(instance, monkeypatch, tmp_path):
    """CL-65, CL-66: of its own accord, as often as it takes; it was placed once."""
    from fairtrial._ray_cluster import Cluster

    placed, start_actor = [], Cluster.start_actor

    def noted(*words):
        placed.append(start_actor(*words))
        return placed[-1]

    monkeypatch.setattr(Cluster, "start_actor", noted)
    with ft.ray.RayBackend(slots=2) as backend:
        for n in range(2):
            call = ft.Call(source=KILLS_ONCE, function="f", args=[str(tmp_path / f"runs{n}")])
            assert backend.execute(call).value == "at last"
    assert len(placed) == 1


def test_a_call_that_takes_every_actor_with_it_is_lost_and_the_rest_goes_on(instance, tmp_path):
    """CL-29, CL-30, CL-65, CL-66: whoever counts the attempts is the driver; Ray makes none of its own."""
    place = tmp_path / "runs"
    with ft.ray.RayBackend(slots=2, max_deliver=2) as backend:
        with pytest.raises(ft.EngineError, match="lost"):
            backend.execute(ft.Call(source=KILLS, function="f", args=[str(place)]))
        assert backend.execute(ft.Call(source=ONE, function="f")).value == 1
    assert len(place.read_text().splitlines()) == 2


def test_the_trees_of_a_lost_actor_are_gone_within_a_second(own, gates):
    """CL-66, CL-68"""
    gate = gates()
    future = own.submit(ft.Call(source=Gate.SOURCE, function="f", args=[gate.place]))
    pid = gate.wait_begun()
    launcher = parent(pid)
    actor = parent(launcher)
    os.remove(gate.place + ".begun")
    begun = time.monotonic()
    os.kill(actor, signal.SIGKILL)
    wait_until(lambda: is_gone(pid) and is_gone(launcher), "the tree's end")
    assert time.monotonic() - begun < 1.0 + max(os.getloadavg()[0] - os.cpu_count(), 0.0)
    gate.wait_begun()
    gate.open()
    assert future.outcome(WAIT_S).verdict == "ok"


def listen(backend):
    """All that is told of calls and workers, as it comes."""
    heard = []
    for name in ("start", "complete", "worker_start", "worker_exit"):
        getattr(backend, "on_" + name)(heard.append)
    return heard


def names(heard):
    return [event.name for event in heard]


def test_a_call_and_its_worker_are_told_of_while_it_runs(own, gates):
    """CL-61"""
    heard = listen(own)
    gate = gates()
    future = own.submit(ft.Call(source=Gate.SOURCE, function="f", args=[gate.place]))
    pid = gate.wait_begun()
    wait_until(lambda: len(heard) == 2, "the beginning's being told")
    assert names(heard) == ["worker_start", "start"]
    assert heard[0].pid == pid and heard[0].worker_id == heard[1].worker_id
    gate.open()
    assert future.outcome(WAIT_S).metrics.worker_id == heard[0].worker_id
    wait_until(lambda: len(heard) == 4, "the end's being told")
    assert names(heard) == ["worker_start", "start", "worker_exit", "complete"]


def test_a_fresh_calls_worker_is_told_of_before_its_call_and_gone_before_that_is_complete(own):
    """CL-61: each by itself and many at a time, functions and commands."""
    heard = listen(own)
    calls = [ft.Call(source=ONE, function="f"), ft.Call(argv=["true"])] * 10
    assert [own.execute(call).verdict for call in calls[:4]] == ["ok"] * 4
    futures = [own.submit(call) for call in calls[4:]]
    assert {future.outcome(WAIT_S).verdict for future in futures} == {"ok"}
    own.shutdown()
    starts = [event for event in heard if event.name == "start"]
    assert len({event.call_id for event in starts}) == len({event.worker_id for event in starts}) == len(calls)
    for start in starts:
        of_both = [event for event in heard if event.worker_id == start.worker_id or event.call_id == start.call_id]
        assert names(of_both) == ["worker_start", "start", "worker_exit", "complete"]
        assert of_both[2].reason == "call_done"
    assert len(heard) == 4 * len(calls)


def test_a_worker_of_many_calls_is_told_of_once_and_its_exit_at_the_end(own):
    """CL-61"""
    heard = listen(own)
    for _ in range(5):
        assert own.execute(ft.Call(source=ONE, function="f", isolation="reuse")).value == 1
    own.shutdown()
    assert names(heard) == ["worker_start", *["start", "complete"] * 5, "worker_exit"]
    assert heard[-1].reason == "shutdown"
    assert len({event.worker_id for event in heard if event.worker_id is not None}) == 1


def test_a_worker_that_ends_while_nobody_calls_is_told_of(own):
    """CL-61: no reply tells of it."""
    heard = listen(own)
    call = ft.Call(source="import os\ndef f(): return os.getpid()", function="f", isolation="reuse")
    os.kill(own.execute(call).value, signal.SIGKILL)
    wait_until(lambda: names(heard) == ["worker_start", "start", "complete", "worker_exit"], "its exit's being told")
    assert heard[-1].worker_id == heard[0].worker_id and heard[-1].reason == "crashed"


def test_the_exit_of_a_worker_that_was_killed_for_its_call_says_why(own):
    """CL-61"""
    heard = listen(own)
    source = "import time\ndef f(): time.sleep(600)"
    call = ft.Call(source=source, function="f", isolation="reuse", timeout_s=0.2)
    assert own.execute(call).verdict == "timeout"
    own.shutdown()
    assert sorted(names(heard)) == ["complete", "start", "worker_exit", "worker_start"]
    assert [event.reason for event in heard if event.name == "worker_exit"] == ["timeout"]


def test_the_workers_of_a_lost_actor_are_told_gone_and_its_calls_begin_once(own, gates):
    """CL-61, CL-66, EX-92"""
    heard = listen(own)
    gate = gates()
    future = own.submit(ft.Call(source=Gate.SOURCE, function="f", args=[gate.place]))
    pid = gate.wait_begun()
    wait_until(lambda: len(heard) == 2, "the beginning's being told")
    os.remove(gate.place + ".begun")
    os.kill(parent(parent(pid)), signal.SIGKILL)
    gate.wait_begun()
    wait_until(lambda: "worker_exit" in names(heard), "the exit's being told")
    gate.open()
    assert future.outcome(WAIT_S).verdict == "ok"
    own.shutdown()
    assert sorted(names(heard)) == sorted(["start", "complete"] + ["worker_start", "worker_exit"] * 2)
    exits = [(event.worker_id, event.reason) for event in heard if event.name == "worker_exit"]
    started = [event.worker_id for event in heard if event.name == "worker_start"]
    assert exits == [(started[0], "crashed"), (started[1], "call_done")]


def test_what_calls_do_without_is_told_once_with_its_node():
    """CL-61, SB-45"""
    needs_ray()
    off = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    under = ["unshare", "--user", "--map-root-user", "sh", "-c", off, "sh"]
    if subprocess.run([*under, "true"], capture_output=True).returncode != 0:
        pytest.skip("user namespaces cannot be made here, so they cannot be switched off")
    ended = program(
        """
        import logging, ray
        import fairtrial as ft
        quiet = dict(include_dashboard=False, log_to_driver=False, logging_level=40)
        ray.init(address="local", num_cpus=1, _node_ip_address="127.0.0.1", **quiet)
        told = []
        with ft.ray.RayBackend(slots=1) as backend:
            backend.on_degraded(told.append)
            for _ in range(2):
                call = ft.Call(argv=["true"], sandbox={"level": "strict", "on_missing": "degrade"})
                outcome = backend.execute(call)
        told = [event for event in told if event.mechanism == "userns"]
        print("told", [(event.level, outcome.metrics.node_id in event.reason) for event in told])
        ray.shutdown()
        """,
        under=under,
    )
    assert "told [('strict', True)]" in ended.stdout, ended.stderr[-3000:]


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_no_variable_of_rays_reaches_a_candidate_at_any_level(own):
    """CL-68"""
    source = (
        "import os\n"
        "def f():\n"
        "    seen = dict(os.environ)\n"
        "    for pid in (os.getpid(), os.getppid()):\n"
        "        try:\n"
        "            text = open(f'/proc/{pid}/environ', 'rb').read().decode()\n"
        "        except OSError:\n"
        "            continue\n"
        "        seen.update(entry.partition('=')[::2] for entry in text.split('\\0') if entry)\n"
        "    return [name for name in seen if name.startswith('RAY_')], 'PATH' in seen\n"
    )
    for level in ("none", "limits", "strict"):
        outcome = own.execute(ft.Call(source=source, function="f", sandbox=level))
        if level == "strict" and outcome.verdict == "setup_failed":
            continue  # this machine has no such level, and nothing ran
        assert outcome.value == ([], True), level
    shown = own.execute(ft.Call(argv=["sh", "-c", "env | grep -c ^RAY_"]))
    assert shown.stdout == "0\n"


def test_calls_of_the_class_timing_have_the_node_to_themselves(instance, tmp_path):
    """CL-69"""
    source = (
        "import os, time\n"
        "def f(folder, name):\n"
        "    os.mkdir(f'{folder}/{name}')\n"
        "    seen = os.listdir(folder)\n"
        "    time.sleep(0.2)\n"
        "    seen += os.listdir(folder)\n"
        "    os.rmdir(f'{folder}/{name}')\n"
        "    return sorted(set(seen))\n"
    )
    folder = tmp_path / "running"
    folder.mkdir()

    def call(name):
        return ft.Call(source=source, function="f", args=[str(folder), name])

    with ft.ray.RayBackend(slots=2, classes=("cpu", "timing")) as backend:
        kinds = ["cpu", "cpu", "timing", "cpu", "timing", "cpu", "cpu"]
        futures = [backend.submit(call(f"{kind}{n}"), cls=kind) for n, kind in enumerate(kinds)]
        seen = [future.outcome(WAIT_S).value for future in futures]
    for number, (kind, others) in enumerate(zip(kinds, seen)):
        if kind == "timing":
            assert others == [f"timing{number}"]
    assert any(len(others) > 1 for others in seen), "calls of the class `cpu` run side by side"


def test_a_store_carries_what_is_large(instance, tmp_path):
    """CL-67"""
    data = os.urandom(300_000)
    (tmp_path / "blobs").mkdir()
    library = tmp_path / "library"
    library.mkdir()
    (library / "helper_of_store.py").write_text("def turned(x): return x[::-1]")
    source = "from helper_of_store import turned\ndef f(x): return turned(x)"
    with ft.ray.RayBackend(slots=1, blobs=(tmp_path / "blobs").as_uri()) as backend:
        call = ft.Call(source=source, function="f", args=[data], python_path=[library])
        assert backend.execute(call).value == data[::-1]
    stored = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert len(stored) == 3, "the arguments, the directory and the value"


class SlowStore(BaseHTTPRequestHandler):
    """Has nothing, and takes nothing before it may."""

    def do_HEAD(self):
        self.send_error(404)

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.set()
        self.server.may_answer.wait(WAIT_S)
        self.send_error(503)

    def log_message(self, *_):
        pass


@pytest.fixture
def slow_store():
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowStore) as server:
        server.asked, server.may_answer = threading.Event(), threading.Event()
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.may_answer.set()
        server.shutdown()
        serving.join()


def test_calls_are_cancelled_while_another_is_put_into_the_store(instance, gates, slow_store):
    """CL-68: one that runs, and the one that is on its way itself."""
    gate = gates()
    with ft.ray.RayBackend(slots=2, blobs="http://127.0.0.1:%d/" % slow_store.server_port) as backend:
        running = backend.submit(ft.Call(source=Gate.SOURCE, function="f", args=[gate.place]))
        pid = gate.wait_begun()
        large = backend.submit(ft.Call(source="def f(x): pass", function="f", args=[os.urandom(300_000)]))
        assert slow_store.asked.wait(WAIT_S)
        running.cancel()
        assert running.outcome(WAIT_S / 4).verdict == "cancelled" and is_gone(pid)
        large.cancel()
        assert large.outcome(WAIT_S / 4).verdict == "cancelled"
        assert backend.execute(ft.Call(source=ONE, function="f")).value == 1
        slow_store.may_answer.set()
