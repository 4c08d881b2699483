"""`RedisBackend` with a real server and agents (CL-14, CL-21, CL-32, CL-33, CL-49, CL-55)."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from support import binary, wait_until

import fairtrial as ft

ADD = "def add(a, b): return a + b"
PATIENCE_S = 60


@pytest.fixture
def url(lonely_url):
    """A server with two agents."""
    with agent(lonely_url, "one"), agent(lonely_url, "two"):
        yield lonely_url


@pytest.fixture
def lonely_url():
    """A server without agents, in a directory of its own."""
    server_program = shutil.which("redis-server")
    if server_program is None:
        pytest.skip("there is no redis-server; it is in the package `redis-server`")
    with tempfile.TemporaryDirectory() as folder:
        socket = os.path.join(folder, "s")
        options = ["--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "yes", "--dir", folder]
        server = subprocess.Popen([server_program, *options], stdout=subprocess.PIPE, text=True)
        try:
            while "eady to accept connections" not in server.stdout.readline():
                assert server.poll() is None
            yield "redis+unix://" + socket
        finally:
            end(server)


@contextlib.contextmanager
def agent(url, name, *more):
    """One of one slot, which serves."""
    words = [str(binary()), "agent", "--redis", url, "--slots", "1", "--name", name, *more]
    process = subprocess.Popen([*words, "--sandbox", "none", "--open-server-ok"], stderr=subprocess.PIPE, text=True)
    try:
        assert "serves" in process.stderr.readline()
        yield
    finally:
        end(process)


def end(process):
    process.kill()
    process.wait()


def test_a_call_is_run_by_an_agent(url):
    """CL-1, CL-55"""
    with ft.RedisBackend(url) as backend:
        outcome = backend.execute(ft.Call(source=ADD, function="add", args=(2, 3)))
        assert (outcome.verdict, outcome.value) == ("ok", 5)
        assert outcome.metrics.node_id in ("one", "two")
        failed = backend.execute(ft.Call(source="def f(): raise KeyError('no')", function="f"))
        assert (failed.verdict, failed.error.type) == ("exception", "KeyError")
        command = backend.execute(ft.Call(argv=["sh", "-c", "echo out; exit 3"]))
        assert (command.verdict, command.exit.code, command.stdout) == ("exit", 3, "out\n")


def asked(url, *words):
    """What the server answers: a number, or a hash."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(url.removeprefix("redis+unix://"))
        connection.sendall((" ".join(words) + "\r\n").encode())
        answer = connection.makefile()
        number = int(answer.readline()[1:])
        if words[0] != "HGETALL":
            return number
        texts = [(answer.readline(), answer.readline().rstrip())[1] for _ in range(number)]
        return dict(zip(texts[::2], texts[1::2]))


def test_each_option_does_what_it_says(lonely_url, tmp_path):
    """CL-33, CL-34, CL-37, CL-39, CL-51, CL-55: what `server_timeout` does is told by the server's being away."""
    store = tmp_path / "store"
    store.mkdir()
    options = {"queue": "mine", "cls": "timing", "weight": 3, "max_queue": 2, "max_inflight": 1, "lease": 9}
    options |= {"blobs": store.as_uri(), "on_full": "error", "server_timeout": 100}
    data = os.urandom(100_000)
    with ft.RedisBackend(lonely_url, **options) as backend:
        call = ft.Call(source="def f(x): return len(x)", function="f", args=(data,))
        taken = [backend.submit(call) for _ in range(2)]
        wait_until(lambda: asked(lonely_url, "XLEN", "ft:{mine}:q:timing") == 2, what="their being queued")
        with pytest.raises(ft.EngineError, match="queue `mine` is full"):
            backend.execute(call)
        terms = asked(lonely_url, "HGETALL", "ft:{mine}:meta")
        told = {name: terms[name] for name in ("max_queue", "max_inflight", "lease", "named")}
        assert told == {"max_queue": "2", "max_inflight": "1", "lease": "9000", "named": "1"}
        assert asked(lonely_url, "HGETALL", "ft:queues") == {"mine": "3"}
        assert any(path.stat().st_size >= len(data) for path in store.rglob("*") if path.is_file())
        with agent(lonely_url, "one", "--class", "timing", "--blobs", store.as_uri(), "--lock", str(tmp_path / "lock")):
            assert [future.outcome(PATIENCE_S).value for future in taken] == [len(data)] * 2


def test_an_option_wins_over_the_urls_own(url):
    """CL-55: all others of the query stay."""
    with ft.RedisBackend(url + "?queue=of-url&weight=2&max_queue=5&lease=8s", queue="mine", weight=3) as backend:
        assert backend.execute(ft.Call(source=ADD, function="add", args=(2, 3))).value == 5
        assert asked(url, "HGETALL", "ft:queues") == {"mine": "3"}
        terms = asked(url, "HGETALL", "ft:{mine}:meta")
        assert (terms["max_queue"], terms["lease"]) == ("5", "8000")


def test_two_equal_calls_are_two_measurements(url, tmp_path):
    """CL-14: each has a key of its own, whoever submits them to a queue."""
    runs = tmp_path / "runs"
    source = "def f(path):\n    with open(path, 'a') as file: file.write('x')"
    for _ in range(2):
        with ft.RedisBackend(url, queue="mine") as backend:
            for _ in range(2):
                assert backend.execute(ft.Call(source=source, function="f", args=(str(runs),))).verdict == "ok"
    assert runs.read_text() == "xxxx"


def test_that_nobody_serves_a_call_is_in_the_log(lonely_url, caplog):
    """CL-38: once, and the call waits."""
    with ft.RedisBackend(lonely_url) as backend, caplog.at_level("WARNING", logger="fairtrial"):
        future = backend.submit(ft.Call(source=ADD, function="add", args=(2, 3)))
        (line,) = said(caplog)
        assert line == "no agent serves calls of class `cpu`; waiting for one: fairtrial agent --class cpu ..."
        assert not future.done() and future.cancel()


def test_that_the_server_is_away_is_in_the_log(tmp_path, caplog):
    """CL-57"""
    url = f"redis+unix://{tmp_path}/nobody"
    with ft.RedisBackend(url, server_timeout=0.2) as backend, caplog.at_level("WARNING", logger="fairtrial"):
        with pytest.raises(ft.EngineError, match="nobody"):
            backend.execute(ft.Call(source=ADD, function="add", args=(2, 3)))
        assert "server_timeout" in said(caplog)[0]


def test_what_is_said_at_the_end_of_a_process_harms_it_in_no_way(tmp_path):
    """CL-57, PY-50: the log's thread ends before the interpreter does."""
    program = f"""
import fairtrial as ft
backend = ft.RedisBackend("redis+unix://{tmp_path}/nobody", server_timeout=30)
backend.submit(ft.Call(source={ADD!r}, function="add", args=(2, 3)))
import time
time.sleep(0.05)
"""
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        assert "Fatal" not in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_forked_child_has_a_log_of_its_own(lonely_url, caplog):
    """CL-38, PY-51"""
    with ft.RedisBackend(lonely_url) as backend, caplog.at_level("WARNING", logger="fairtrial"):
        future = backend.submit(ft.Call(source=ADD, function="add", args=(2, 3)))
        said(caplog)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            caplog.clear()
            with ft.RedisBackend(lonely_url) as of_the_child:
                of_the_child.submit(ft.Call(source=ADD, function="add", args=(2, 3)))
                os.write(write, said(caplog)[0].encode())
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as told:
            assert "no agent serves" in told.read()
        assert os.waitpid(child, 0)[1] == 0
        future.cancel()


def said(caplog):
    def messages():
        return [record.getMessage() for record in caplog.records if record.name == "fairtrial"]

    return wait_until(messages, what="a line in the log")


def test_large_values_travel_through_the_store(url):
    """CL-13, CL-51"""
    with ft.RedisBackend(url) as backend:
        data = os.urandom(3_000_000)
        echo = ft.Call(source="def f(x): return x[::-1]", function="f", args=(data,))
        assert backend.execute(echo).value == data[::-1]


def test_many_threads_and_loops_share_one(url):
    """CL-33, CL-55: more calls than the queue takes at a time."""
    with ft.RedisBackend(url, max_queue=10) as backend:
        found = []

        def ask(first):
            calls = [ft.Call(source=ADD, function="add", args=(first, n)) for n in range(10)]
            found.extend(backend.execute(call).value for call in calls)

        async def ask_all(first):
            calls = [ft.Call(source=ADD, function="add", args=(first, n)) for n in range(10)]
            found.extend(outcome.value for outcome in await asyncio.gather(*map(backend.aexecute, calls)))

        threads = [threading.Thread(target=ask, args=(100 * n,)) for n in range(1, 4)]
        threads += [threading.Thread(target=lambda n=n: asyncio.run(ask_all(100 * n))) for n in range(4, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sorted(found) == [100 * first + n for first in range(1, 6) for n in range(10)]


def test_a_cancelled_call_is_killed_where_it_runs(url, tmp_path):
    """CL-20, CL-21"""
    source = "import time\ndef f(path):\n    open(path, 'w').close()\n    time.sleep(600)"
    with ft.RedisBackend(url) as backend:
        begun = tmp_path / "begun"
        future = backend.submit(ft.Call(source=source, function="f", args=(str(begun),)))
        deadline = time.monotonic() + PATIENCE_S
        while not begun.exists() and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        future.cancel()
        assert future.outcome().verdict == "cancelled"
        free = [backend.execute(ft.Call(source=ADD, function="add", args=(1, n))).value for n in range(4)]
        assert free == [1, 2, 3, 4]


def test_hooks_hear_each_call_once_and_the_end_last(url):
    """CL-61, EX-92"""
    heard = []
    backend = ft.RedisBackend(url)
    for name in ("submit", "complete", "shutdown"):
        getattr(backend, "on_" + name)(lambda event: heard.append((event.name, event.call_id)))
    with backend:
        for n in range(3):
            backend.execute(ft.Call(source=ADD, function="add", args=(1, n)))
    assert sorted(heard[:-1]) == sorted((name, n) for name in ("submit", "complete") for n in (1, 2, 3))
    assert heard[-1] == ("shutdown", None)


def test_what_could_never_work_is_refused_when_it_is_made():
    """CL-45, CL-55: making one connects to nothing."""
    ft.RedisBackend("redis://127.0.0.1:1").shutdown()
    for url, options, says in [
        ("mail://x", {}, "address"),
        ("redis://h?wait=1", {}, "wait"),
        ("redis://h", {"on_full": "never"}, "on_full"),
        ("redis://u:secret@far.example", {}, "in the clear"),
    ]:
        with pytest.raises(ValueError, match=says) as refused:
            ft.RedisBackend(url, **options)
        assert "secret" not in str(refused.value)
    with pytest.raises(TypeError):
        ft.RedisBackend("redis://h", weigth=2)
    assert "secret" not in repr(ft.RedisBackend("redis://u:secret@127.0.0.1"))


def test_a_server_that_is_away_is_an_engine_error_after_a_while():
    """CL-55, CL-57: an option wins over the URL's own."""
    with ft.RedisBackend("redis://127.0.0.1:1?server_timeout=1h", server_timeout=0.2) as backend:
        with pytest.raises(ft.EngineError, match="cannot reach the server"):
            backend.execute(ft.Call(source=ADD, function="add", args=(1, 2)))


TRACED = """
class Traced:
    def __init__(self, path):
        self.path = path
    def __reduce__(self):
        return (exec, ("import os; open(%r, 'a').write('%%d ' %% os.getpid())" % self.path,))
def f(path):
    return [Traced(path)]
"""


def test_a_pickled_value_is_loaded_by_whoever_asks_for_it(url, tmp_path):
    """CL-49: each time it is loaded, the pickle writes down by whom. Neither agent nor coordinator does."""
    said = tmp_path / "loaded"
    with ft.RedisBackend(url) as backend:
        outcome = backend.execute(ft.Call(source=TRACED, function="f", args=(str(said),), result="pickle"))
        assert outcome.verdict == "ok"
        assert not said.exists(), "nobody loaded it on its way"
        assert outcome.unpickle() == [None]
        assert said.read_text().split() == [str(os.getpid())], "whoever asks for it does"


def test_a_url_may_be_in_a_file(url, tmp_path):
    """CL-45, CL-55"""
    file = tmp_path / "url"
    file.write_text(url + "\n")
    with ft.RedisBackend(f"@{file}") as backend:
        assert backend.execute(ft.Call(source=ADD, function="add", args=(2, 3))).value == 5


@pytest.mark.parametrize("given", ["redis//127.0.0.1", "127.0.0.1:17391", "redis://127.0.0.1:notaport", "loacl", ""])
def test_what_is_no_url_is_told_with_an_example(given):
    """CL-55"""
    with pytest.raises(ValueError, match="write for example `redis://host:6379`") as told:
        ft.RedisBackend(given)
    assert "`" + given.replace("notaport", "…") + "`" in str(told.value)


def test_an_empty_file_of_a_url_is_told(tmp_path):
    """CL-55"""
    (tmp_path / "url").touch()
    with pytest.raises(ValueError, match="is empty"):
        ft.RedisBackend(f"@{tmp_path / 'url'}")
    with pytest.raises(FileNotFoundError):
        ft.RedisBackend("@/nonexistent/url")
