"""Clusters of Ray of a test's own: who may use one, how it is started and left, nodes that go, refuse or are full."""

import json
import socket
import subprocess

import pytest
from conftest import is_gone
from ray_programs import needs_ray, program

import fairtrial as ft


def test_a_cluster_beyond_this_machine_is_refused_without_a_token():
    """CL-68"""
    needs_ray()
    from fairtrial._ray_cluster import refuse_strangers

    refuse_strangers(["127.0.0.1", "::1"], "")
    for mode in ("", "disabled", " Disabled"):
        with pytest.raises(ft.EngineError, match="RAY_AUTH_MODE=token"):
            refuse_strangers(["127.0.0.1", "10.1.2.3"], mode)
    refuse_strangers(["10.1.2.3"], "token")


@pytest.mark.parametrize("mode", ["disabled", "token"])
def test_a_real_cluster_on_the_machines_own_address_takes_calls_with_a_token_only(mode, tmp_path):
    """CL-68"""
    needs_ray()
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but the loopback's")
    ended = program(
        f"""
        import ray
        quiet = dict(include_dashboard=False, log_to_driver=False, logging_level=40)
        ray.init(address="local", num_cpus=1, _node_ip_address="{address}", **quiet)
        import fairtrial as ft
        with ft.ray.RayBackend() as backend:
            try:
                print("value:", backend.execute(ft.Call(source="def f(): return 7", function="f")).value)
            except ft.EngineError as error:
                print("refused:", error)
        """,
        RAY_AUTH_MODE=mode,
        HOME=str(tmp_path),  # where Ray keeps its token
    )
    said = f"reached at {address}" if mode == "disabled" else "value: 7"
    assert said in ended.stdout, ended.stderr[-2000:]


def own_address():
    words = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    return next((word for word in words if "." in word and not word.startswith("127.")), None)


def test_it_starts_ray_itself_and_ends_it(tmp_path):
    """CL-65, CL-68: for strangers out of reach, or with a token; for as long as it lives, also if nobody ends it."""
    needs_ray()
    for ends in ("backend.shutdown()", "pass"):
        ended = program(
            f"""
            import json, os
            import fairtrial as ft
            backend = ft.ray.RayBackend(slots=1)
            outcome = backend.execute(ft.Call(source="import os\\ndef f(): return os.getpid()", function="f"))
            import ray
            addresses = [node["NodeManagerAddress"] for node in ray.nodes()]
            print(json.dumps([outcome.value, addresses, os.environ.get("RAY_AUTH_MODE")]))
            {ends}
            """,
            HOME=str(tmp_path),  # where Ray keeps its token
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
        pid, addresses, mode = json.loads(ended.stdout.splitlines()[-1])
        assert addresses == ["127.0.0.1"] or mode == "token"
        assert is_gone(pid)


def test_a_node_that_is_lost_loses_no_call():
    """CL-65, CL-66: two nodes, one of which goes while it has a call. Each could hold both actors, and has its own."""
    needs_ray()
    ended = program(
        """
        import os, tempfile, time
        from ray.cluster_utils import Cluster
        import fairtrial as ft

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
        other = cluster.add_node(num_cpus=4)
        cluster.wait_for_nodes()
        source = (
            "import os, time\\n"
            "def f(folder):\\n"
            "    place = os.path.join(folder, os.environ['FAIRTRIAL_NODE_ID'])\\n"
            "    with open(place + '.new', 'w') as file: file.write(str(os.getpid()))\\n"
            "    os.rename(place + '.new', place)\\n"
            "    while not os.path.exists(os.path.join(folder, 'open')): time.sleep(0.01)\\n"
            "    return os.environ['FAIRTRIAL_NODE_ID']\\n"
        )
        with tempfile.TemporaryDirectory() as folder, ft.ray.RayBackend(cluster.address, slots=1) as backend:
            futures = [backend.submit(ft.Call(source=source, function="f", args=[folder])) for _ in range(2)]
            deadline = time.monotonic() + 60
            begun = lambda: [name for name in os.listdir(folder) if not name.endswith(".new")]
            while len(begun()) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            print("nodes", len(begun()))
            pids = [open(os.path.join(folder, name)).read() for name in begun()]
            cluster.remove_node(other, allow_graceful=False)
            while all(os.path.exists("/proc/" + pid) for pid in pids) and time.monotonic() < deadline:
                time.sleep(0.01)
            open(os.path.join(folder, "open"), "w").close()
            print("same", len({future.outcome(90).value for future in futures}))
        cluster.shutdown()
        """,
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN="a" * 64,
    )
    said = [line for line in ended.stdout.splitlines() if line.startswith(("nodes", "same"))]  # Ray tells of it, too
    assert said == ["nodes 2", "same 1"], ended.stderr[-3000:]


def test_a_cluster_that_is_not_there_is_told_at_once():
    """CL-57, CL-65: nobody listens, and nobody waits for somebody to."""
    needs_ray()
    with socket.socket() as taken:  # bound, and never listening: no other takes the port meanwhile
        taken.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        ended = program(
            f"""
            import fairtrial as ft
            with ft.ray.RayBackend("{address}") as backend:
                try:
                    backend.execute(ft.Call(source="def f(): pass", function="f"))
                except ft.EngineError as error:
                    print(error)
            """
        )
    assert f"cannot use the Ray cluster: cannot reach `{address}`" in ended.stdout, ended.stderr[-3000:]


def test_what_every_node_refuses_fails_with_the_reasons_of_all():
    """CL-22: two nodes, one of which then goes while a call that the other refused waits for it."""
    needs_ray()
    ended = program(
        """
        import json, os, tempfile, time
        from ray.cluster_utils import Cluster
        import fairtrial as ft

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        other = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        source = (
            "import os, time\\n"
            "def f(folder):\\n"
            "    place = os.path.join(folder, os.environ['FAIRTRIAL_NODE_ID'])\\n"
            "    open(place, 'w').close()\\n"
            "    while not os.path.exists(place + '.open'): time.sleep(0.01)\\n"
        )

        def wait_until(holds):
            deadline = time.monotonic() + 60
            while not holds() and time.monotonic() < deadline:
                time.sleep(0.01)

        with tempfile.TemporaryDirectory() as folder, ft.ray.RayBackend(cluster.address) as backend:
            impossible = ft.Call(argv=["true"], cwd=os.path.join(folder, "not-there"))
            said = [backend.execute(impossible)]
            held = [backend.submit(ft.Call(source=source, function="f", args=[folder])) for _ in range(2)]
            wait_until(lambda: len(os.listdir(folder)) == 2)
            nodes = os.listdir(folder)
            [head] = set(nodes) - {other.node_id}
            open(os.path.join(folder, head + ".open"), "w").close()
            waiting = backend.submit(impossible)
            time.sleep(1)
            is_refused = waiting.done()
            cluster.remove_node(other, allow_graceful=False)
            said.append(waiting.outcome(60))
            print("said", json.dumps([nodes, is_refused, [[each.verdict, each.error.message] for each in said]]))
            [future.outcome(60) for future in held]
        cluster.shutdown()
        """,
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN="a" * 64,
    )
    said = [line[5:] for line in ended.stdout.splitlines() if line.startswith("said ")]
    assert said, ended.stderr[-3000:]
    nodes, is_refused, [by_all, by_one] = json.loads(said[0])
    assert len(nodes) == 2 and by_all[0] == by_one[0] == "setup_failed"
    assert all(by_all[1].count(node) == 1 for node in nodes) and by_all[1].count("not-there") == 2
    assert not is_refused, "the other node may have what it needs"
    assert by_one[1].count("not-there") == 1


def test_who_waits_for_a_place_says_so_once():
    """CL-38, CL-65: most processors are another backend's, as many as it has slots, until that ends."""
    needs_ray()
    ended = program(
        """
        import logging, time
        import ray
        import fairtrial as ft
        from fairtrial import _ray_driver

        said = []
        class Kept(logging.Handler):
            def emit(self, record):
                said.append(record.getMessage())
        logging.getLogger("fairtrial").addHandler(Kept())
        quiet = dict(include_dashboard=False, log_to_driver=False, logging_level=40)
        ray.init(address="local", num_cpus=3, _node_ip_address="127.0.0.1", **quiet)
        call = ft.Call(source="def f(): return 7", function="f")
        with ft.ray.RayBackend(slots=2) as first:
            first.execute(call)
            print("first", len(said))
            _ray_driver.PLACE_PATIENCE_S = 1.0
            second = ft.ray.RayBackend(slots=2)
            future = second.submit(call)
            deadline = time.monotonic() + 60
            while not said and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(3)
            print("second", len(said), future.done(), said[0])
        print("value", future.outcome(60).value, len(said))
        second.shutdown()
        ray.shutdown()
        """
    )
    first, second, value = ended.stdout.splitlines()[-3:] or [""] * 3
    assert first == "first 0", ended.stderr[-3000:]
    assert second == (
        "second 1 False calls wait for a place on the Ray cluster: "
        "1 of 3 processors are free, and a node's actor takes 2"
    )
    assert value == "value 7 1"
