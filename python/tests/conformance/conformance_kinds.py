"""The backends that the suite is run for: each kind has somebody who starts what it needs, and makes backends.

A factory takes no options: whatever it makes runs two calls at a time and has nothing else to do.
"""

import contextlib
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import fairtrial as ft

KINDS = ("local", "redis", "ray")
SLOTS = 2


@contextlib.contextmanager
def factory(kind):
    """Starts what a kind needs, and gives a function that makes its backends."""
    with {"local": local, "redis": redis, "ray": ray}[kind]() as make:
        yield make


@contextlib.contextmanager
def local():
    yield lambda: ft.LocalBackend(SLOTS)


@contextlib.contextmanager
def redis():
    """A server with two agents of one slot each, in a directory of their own."""
    server_program = shutil.which("redis-server")
    if server_program is None:
        assert "FAIRTRIAL_REQUIRE_REDIS" not in os.environ, "there is no redis-server"
        pytest.skip("there is no redis-server; it is in the package `redis-server`")
    binary = program()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        socket = os.path.join(folder, "s")
        options = ["--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "yes", "--dir", folder]
        server = started(stack, [server_program, *options], stdout=subprocess.PIPE)
        while "eady to accept connections" not in server.stdout.readline():
            assert server.poll() is None
        address = "redis+unix://" + socket
        for name in ("one", "two"):
            words = [binary, "agent", "--redis", address, "--slots", "1", "--name", name, "--lease", "4s"]
            agent = started(stack, [*words, "--sandbox", "none", "--open-server-ok"], stderr=subprocess.PIPE)
            assert "serves" in agent.stderr.readline()
        yield lambda: ft.RedisBackend(address)


@contextlib.contextmanager
def ray():
    """An instance of Ray on this machine, whose one node has processors for several backends: each takes its own."""
    ray = pytest.importorskip("ray", reason="Ray is not installed for this Python: it is for one version, being large")
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.WARNING}
    ray.init(address="local", num_cpus=8 * SLOTS, _node_ip_address="127.0.0.1", **quiet)
    try:
        yield lambda: ft.ray.RayBackend(slots=SLOTS)
    finally:
        ray.shutdown()


def started(stack, words, **streams):
    process = subprocess.Popen(words, text=True, **streams)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def program():
    named = os.environ.get("FAIRTRIAL_BINARY")
    root = Path(__file__).resolve().parents[3] / "target"
    found = [Path(named)] if named else [root / "debug" / "fairtrial", root / "release" / "fairtrial"]
    for path in found:
        if path.exists():
            return str(path)
    pytest.skip("there is no `fairtrial` program: FAIRTRIAL_BINARY names none, and none was built")
