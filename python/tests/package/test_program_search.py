"""What a program search asks of its executor: behaviours of GigaEvo's, restated as calls and what becomes of them.

Each row is a source text, its terms, a verdict and what else must hold. Rows of one table are run on one backend, so
each also shows that the rows before it left nothing behind.
"""

import asyncio
import concurrent.futures
import math
import os
import sys
import threading

import pytest
from support import WAIT_S, is_gone, nothing_left, wait_until

import fairtrial as ft


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Checked for all of this file together: its backend starts and ends processes as it sees fit."""


@pytest.fixture(scope="module")
def shared(adopt_orphans):
    """The backend of all rows."""
    with nothing_left(), ft.LocalBackend(2) as backend:
        yield backend


def run(backend, source, *args, **terms):
    function = terms.pop("function", "f")
    return backend.execute(ft.Call(source=source, function=function, args=args, timeout_s=WAIT_S, **terms))


def rows(table):
    return pytest.mark.parametrize("row", table.values(), ids=table)


# -- values that come back

VALUES = {
    "an int": ("def f(): return 42", (), 42),
    "a float": ("def f(): return 1.5", (), 1.5),
    "infinity": ("def f(): return float('inf')", (), math.inf),
    "none": ("def f(): return None", (), None),
    "nothing returned": ("def f(): pass", (), None),
    "a bool": ("def f(): return True", (), True),
    "text": ("def f(): return 'text'", (), "text"),
    "unicode": ("def f(): return '\\u00e9\\U0001f600'", (), "\u00e9\U0001f600"),
    "bytes": ("def f(): return b'\\x00\\xff'", (), b"\x00\xff"),
    "a list": ("def f(): return [1, 'a', None]", (), [1, "a", None]),
    "a tuple": ("def f(): return (1, (2,))", (), (1, (2,))),
    "a set": ("def f(): return {1, 2}", (), {1, 2}),
    "a dict": ("def f(): return {'fitness': 0.5, 'valid': 1}", (), {"fitness": 0.5, "valid": 1}),
    "nested": ("def f(): return {'a': [{'b': (1,)}]}", (), {"a": [{"b": (1,)}]}),
    "a large int": ("def f(): return 2 ** 500", (), 2**500),
    "complex": ("def f(): return 1 + 2j", (), 1 + 2j),
    "an argument": ("def f(x): return x", ({"a": [1]},), {"a": [1]}),
    "several arguments": ("def f(a, b, c): return [c, b, a]", (1, 2, 3), [3, 2, 1]),
    "a default": ("def f(a, b=5): return a + b", (1,), 6),
    "variadic": ("def f(*a): return list(a)", (1, 2), [1, 2]),
    "a coroutine": ("async def f(): return 7", (), 7),
    "a closure": ("def g(n):\n    return lambda x: x + n\nf = g(3)", (4,), 7),
    "a lambda": ("f = lambda x: -x", (4,), -4),
    "a class": ("class f:\n    def __new__(cls, x): return x * 2", (4,), 8),
    "recursion": ("def f(n): return 1 if n < 2 else n * f(n - 1)", (20,), math.factorial(20)),
    "a helper": ("def g(x): return x + 1\ndef f(x): return g(g(x))", (1,), 3),
    "a global": ("G = [5]\ndef f(): return G[0]", (), 5),
    "a dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(): return P(3).x",
        (),
        3,
    ),
    "annotations": ("from __future__ import annotations\ndef f(x: Missing) -> Missing: return x", (1,), 1),
    "an import": ("import math, json\ndef f(): return json.loads('[%d]' % math.floor(2.5))", (), [2]),
    "no main guard": ("def f(): return __name__\nif __name__ == '__main__': raise SystemExit", (), "__candidate__"),
    "a generator made a list": ("def f(): return list(i * i for i in range(4))", (), [0, 1, 4, 9]),
    "a namedtuple as a tuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(): return P(1, 2)",
        (),
        (1, 2),
    ),
    "a defaultdict as a dict": (
        "from collections import defaultdict\ndef f():\n    d = defaultdict(int)\n    d['a'] += 1\n    return d",
        (),
        {"a": 1},
    ),
    "a thread's work": (
        "import threading\ndef f():\n    r = []\n    t = threading.Thread(target=r.append, args=(1,))\n"
        "    t.start(); t.join(); return r",
        (),
        [1],
    ),
    "a child process's work": (
        "import subprocess\ndef f(): return subprocess.check_output(['echo', 'hi'], text=True)",
        (),
        "hi\n",
    ),
}


@rows(VALUES)
def test_a_value_comes_back(shared, row):
    """PY-40, PY-45"""
    source, args, expected = row
    outcome = run(shared, source, *args)
    assert (outcome.verdict, outcome.error) == ("ok", None)
    assert outcome.value == expected and type(outcome.value) is type(expected)


# -- exceptions, and what is said of them

FAILURES = {
    "a ValueError": ("def f(): raise ValueError('bad fitness')", "ValueError", ["bad fitness", "line 1, in f"]),
    "a division": ("def f():\n    x = 0\n    return 1 / x", "ZeroDivisionError", ["line 3, in f", ">> "]),
    "a KeyError": ("def f(): return {}['k']", "KeyError", ["'k'"]),
    "a syntax error": ("def f(:\n    pass", "SyntaxError", ["line 1", "^"]),
    "an indentation error": ("def f():\npass", "IndentationError", ["line 2"]),
    "a name error at import": ("x = missing\ndef f(): pass", "NameError", ["missing", "line 1"]),
    "a missing module": ("import no_such_module_at_all\ndef f(): pass", "ModuleNotFoundError", ["no_such_module"]),
    "a missing function": ("def solve(): pass", "LookupError", ["solve"]),
    "a function that is none": ("f = 3", "TypeError", ["f"]),
    "too few arguments": ("def f(a, b): pass", "TypeError", ["2 required positional arguments"]),
    "a chain": (
        "def f():\n    try: 1 / 0\n    except ZeroDivisionError as e: raise ValueError('outer') from e",
        "ValueError",
        ["ZeroDivisionError", "direct cause", "outer"],
    ),
    "own class": ("class Own(Exception): pass\ndef f(): raise Own('mine')", "Own", ["mine"]),
    "recursion without end": ("def f(): return f()", "RecursionError", ["recursion"]),
    "an exit": ("import sys\ndef f(): sys.exit(3)", "SystemExit", ["3"]),
    "an interrupt": ("def f(): raise KeyboardInterrupt", "KeyboardInterrupt", []),
    "a failed assertion": ("def f(): assert 1 == 2, 'not so'", "AssertionError", ["not so"]),
    "an error that does not print": (
        "class E(Exception):\n    def __str__(self): raise RuntimeError\ndef f(): raise E",
        "E",
        [],
    ),
    "an error in a helper": ("def g(): return [][1]\ndef f(): return g()", "IndexError", ["in g", "in f"]),
    "an error in a coroutine": ("async def f(): raise ValueError('later')", "ValueError", ["later"]),
    "a memory error raised": ("def f(): raise MemoryError('said so')", "MemoryError", ["said so"]),
}


@rows(FAILURES)
def test_an_exception_is_reported_with_its_traceback(shared, row):
    """PY-40, PY-44"""
    source, kind, words = row
    outcome = run(shared, source)
    assert outcome.verdict == "exception" and outcome.value is None
    assert outcome.error.type.rpartition(".")[2] == kind
    for word in words:
        assert word in outcome.error.message + outcome.error.traceback, outcome.error.traceback
    assert "_worker" not in outcome.error.traceback, "only the candidate's own frames"


# -- what goes wrong otherwise

TROUBLES = {
    "a busy loop": ("def f():\n    while True: pass", {"timeout_s": 0.3}, "timeout"),
    "a sleep": ("import time\ndef f(): time.sleep(3600)", {"timeout_s": 0.3}, "timeout"),
    "a loop at import": ("while True: pass", {"timeout_s": 0.3}, "timeout"),
    "a loop that catches all": (
        "def f():\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        {"timeout_s": 0.3},
        "timeout",
    ),
    "signals ignored": (
        "import signal, time\ndef f():\n    for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"
        "    time.sleep(3600)",
        {"timeout_s": 0.3},
        "timeout",
    ),
    "a child that hangs": (
        "import subprocess\ndef f(): subprocess.run(['sleep', '3600'])",
        {"timeout_s": 0.3},
        "timeout",
    ),
    "a thread that hangs after the value": (
        "import threading, time\ndef f():\n    threading.Thread(target=time.sleep, args=(3600,)).start()\n    return 1",
        {},
        "ok",
    ),
    "an exit handler that hangs": (
        "import atexit, time\ndef f():\n    atexit.register(time.sleep, 3600)\n    return 1",
        {},
        "ok",
    ),
    "a processor's time": ("def f():\n    while True: pass", {"limits": ft.Limits(cpu=1)}, "cpu_limit"),
    "memory": (
        "def f(): return len(bytearray(500_000_000))",
        {"limits": ft.Limits(memory="100M")},
        "memory_limit",
    ),
    "memory in small pieces": (
        "def f():\n    kept = []\n    while True: kept.append(bytearray(1_000_000))",
        {"limits": ft.Limits(memory="100M")},
        "memory_limit",
    ),
    "memory at import": ("x = bytearray(500_000_000)", {"limits": ft.Limits(memory="100M")}, "memory_limit"),
    "enough memory": ("def f(): return len(bytearray(10_000_000))", {"limits": ft.Limits(memory="400M")}, "ok"),
    "output": ("def f():\n    while True: print('x' * 1000)", {"limits": ft.Limits(output="100K")}, "output_limit"),
    "a file": (
        "def f():\n    with open('big', 'wb') as out: out.write(bytes(5_000_000))",
        {"limits": ft.Limits(file_size="1M")},
        "disk_limit",
    ),
    "a crash": ("import ctypes\ndef f(): ctypes.string_at(0)", {}, "signal"),
    "an abort": ("import os\ndef f(): os.abort()", {}, "signal"),
    "a kill of itself": ("import os\ndef f(): os.kill(os.getpid(), 9)", {}, "signal"),
    "an exit of the process": ("import os\ndef f(): os._exit(7)", {}, "exit"),
    "a silent exit": ("import os\ndef f(): os._exit(0)", {}, "no_result"),
    "a function": ("def f(): return lambda: 1", {}, "bad_result"),
    "an open file": ("def f(): return open('/dev/null')", {}, "bad_result"),
    "an object": ("class C: pass\ndef f(): return C()", {}, "bad_result"),
    "a generator": ("def f(): yield 1", {}, "bad_result"),
    "a module": ("import math\ndef f(): return math", {}, "bad_result"),
    "a cycle": ("def f():\n    a = []\n    a.append(a)\n    return a", {}, "bad_result"),
    "something deep in a list": ("def f(): return [1, {'k': (object(),)}]", {}, "bad_result"),
    "a lock that does not pickle": (
        "import threading\ndef f(): return threading.Lock()",
        {"result": "pickle"},
        "bad_result",
    ),
    "a missing directory": ("def f(): pass", {"cwd": "/no/such/place"}, "setup_failed"),
    "a missing interpreter": ("def f(): pass", {"python": "/no/such/python"}, "setup_failed"),
    "a missing preload": ("def f(): pass", {"preload": ["no_such_module_at_all"]}, "setup_failed"),
}


@rows(TROUBLES)
def test_trouble_has_its_verdict_and_the_next_call_is_fine(shared, row):
    """PY-40, PY-42"""
    source, terms, verdict = row
    outcome = shared.execute(ft.Call(source=source, function="f", **{"timeout_s": WAIT_S, **terms}))
    assert outcome.verdict == verdict, outcome.error
    assert (outcome.error is None) == (verdict == "ok")
    assert outcome.metrics.measured_by == "engine" or verdict == "setup_failed"
    assert run(shared, "def f(): return 'fine'").value == "fine"


# -- output

OUTPUT = {
    "print": ("def f(): print('said')", "said\n", ""),
    "print to stderr": ("import sys\ndef f(): print('said', file=sys.stderr)", "", "said\n"),
    "at import": ("print('early')\ndef f(): print('late')", "early\nlate\n", ""),
    "by descriptor": ("import os\ndef f(): os.write(1, b'raw')", "raw", ""),
    "by a child": ("import subprocess\ndef f(): subprocess.run(['echo', 'child'])", "child\n", ""),
    "by C": ("import ctypes\ndef f(): ctypes.CDLL(None).puts(b'from C')", "from C\n", ""),
    "before an exception": ("def f():\n    print('said')\n    raise ValueError", "said\n", ""),
    "before a crash": ("import os\ndef f():\n    print('said')\n    os.abort()", "said\n", None),
    "before a timeout": ("def f():\n    print('said', end='')\n    while True: pass", "said", None),
    "with a replaced stream": (
        "import io, sys\ndef f():\n    sys.stdout = io.StringIO()\n    print('kept')",
        "",
        "",
    ),
    "without a newline": ("def f(): print('a', end='')", "a", ""),
    "in order": ("def f():\n    for n in range(3): print(n)", "0\n1\n2\n", ""),
    "invalid text": ("import os\ndef f(): os.write(1, b'\\xff!')", "\ufffd!", ""),
}


@rows(OUTPUT)
def test_output_is_captured(shared, row, capfd):
    """PY-32, PY-42"""
    source, out, err = row
    outcome = shared.execute(ft.Call(source=source, function="f", timeout_s=1 if "while" in source else WAIT_S))
    assert outcome.stdout == out
    assert err is None or outcome.stderr == err
    assert capfd.readouterr() == ("", ""), "nothing is echoed"


def test_long_output_keeps_its_head_and_its_tail(shared):
    """PY-42"""
    source = "def f():\n    print('head')\n    print('x' * 100_000)\n    print('tail')"
    outcome = run(shared, source, capture_bytes=1000)
    assert outcome.stdout.startswith("head") and outcome.stdout.endswith("tail\n")
    assert outcome.dropped["stdout"] == 100_000 + 11 - 1000


# -- what one call leaves to the next

POLLUTION = {
    "a directory": ("import os\nos.chdir('/')", "import os\ndef f(): return os.getcwd() == '/'", False),
    "a variable": ("import os\nos.environ['LEFT'] = '1'", "import os\ndef f(): return 'LEFT' in os.environ", False),
    "a removed variable": (
        "import os\ndel os.environ['PATH']",
        "import os\ndef f(): return 'PATH' in os.environ",
        True,
    ),
    "a path": ("import sys\nsys.path.insert(0, '/left')", "import sys\ndef f(): return '/left' in sys.path", False),
    "a cleared path": ("import sys\nsys.path.clear()", "import sys\ndef f(): return len(sys.path) > 0", True),
    "an argument": ("import sys\nsys.argv.append('left')", "import sys\ndef f(): return 'left' in sys.argv", False),
    "a global": ("LEFT = 1", "def f(): return 'LEFT' in globals()", False),
    "a stream": (
        "import sys\nsys.stdout = None",
        "import sys\ndef f():\n    print('x')\n    return sys.stdout is not None",
        True,
    ),
    "a handler": (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "import signal\ndef f(): return signal.getsignal(signal.SIGTERM) == signal.SIG_DFL",
        True,
    ),
    "a umask": (
        "import os\nos.umask(0o777)",
        "import os\ndef f():\n    now = os.umask(0)\n    return now != 0o777",
        True,
    ),
    "a recursion limit": (
        "import sys\nsys.setrecursionlimit(123456)",
        "import sys\ndef f(): return sys.getrecursionlimit()",
        1000,
    ),
    "a file in its directory": (
        "open('left', 'w').close()",
        "import os\ndef f(): return os.path.exists('left')",
        False,
    ),
}


@pytest.mark.parametrize("isolation", ["fresh", "reuse"])
@rows(POLLUTION)
def test_a_call_leaves_nothing_to_the_next(shared, row, isolation):
    """PY-42, and the divergences: changes of cwd, environment and `sys.path` are undone"""
    pollute, look, expected = row
    with ft.LocalBackend(1) as backend:
        first = run(backend, pollute + "\ndef f(): pass", isolation=isolation)
        assert first.ok, first.error
        assert run(backend, look, isolation=isolation).value == expected


def test_a_module_changed_in_a_fresh_call_is_itself_in_the_next(shared):
    """PY-42"""
    run(shared, "import json\njson.dumps = None\ndef f(): pass")
    assert run(shared, "import json\ndef f(): return json.dumps([1])").value == "[1]"


def test_the_host_is_not_changed_by_its_calls(shared):
    """PY-42"""
    before = os.getcwd(), dict(os.environ), list(sys.path)
    run(shared, "import os, sys\nos.chdir('/')\nos.environ['X'] = '1'\nsys.path.clear()\ndef f(): pass")
    assert (os.getcwd(), dict(os.environ), list(sys.path)) == before


def test_secrets_of_the_host_are_not_found(monkeypatch):
    """PY-42"""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    source = (
        "import os, glob\ndef f():\n    found = [n for n, v in os.environ.items() if 'sk-secret' in v]\n"
        "    found += ['self'] if b'sk-secret' in open('/proc/self/environ', 'rb').read() else []\n    return found"
    )
    with ft.LocalBackend(1) as backend:
        assert run(backend, source).value == []


# -- paths


def test_modules_of_python_path_are_found_and_forgotten(shared, tmp_path):
    """PY-42"""
    for name, value in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper_of_candidates.py").write_text(f"VALUE = {value}\n")
    source = "import helper_of_candidates\ndef f(): return helper_of_candidates.VALUE"
    for isolation in ("fresh", "reuse"):
        for name, value in (("one", 1), ("two", 2), ("one", 1)):
            outcome = run(shared, source, python_path=[tmp_path / name], isolation=isolation)
            assert outcome.value == value
        assert run(shared, source, isolation=isolation).verdict == "exception"


def test_a_cwd_that_is_given_is_used_and_left_alone(shared, tmp_path):
    """PY-42"""
    source = "import os\ndef f():\n    open('made', 'w').close()\n    return os.getcwd()"
    assert run(shared, source, cwd=tmp_path).value == str(tmp_path)
    assert (tmp_path / "made").exists()


def test_without_a_cwd_a_call_has_a_directory_of_its_own(shared):
    """PY-42"""
    source = "import os, tempfile\ndef f(): return os.getcwd(), os.listdir('.'), tempfile.gettempdir()"
    for _ in range(2):
        directory, files, temporary = run(shared, source).value
        assert files == [] and temporary == directory != os.getcwd()


# -- size, number, order


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 1_000_000, 50_000_000])
def test_a_result_of_any_size_comes_back(shared, size):
    """PY-42, PY-46"""
    outcome = run(shared, "def f(n): return b'x' * n", size)
    assert len(outcome.value) == size


@pytest.mark.parametrize("size", [65_536, 5_000_000])
def test_an_argument_of_any_size_arrives(shared, size):
    """PY-42"""
    assert run(shared, "def f(x): return len(x)", b"x" * size).value == size


def test_calls_run_side_by_side(shared):
    """PY-42"""
    source = "import time\ndef f(x):\n    time.sleep(0.01)\n    return x"
    futures = [shared.submit(ft.Call(source=source, function="f", args=[n])) for n in range(20)]
    assert [future.outcome(WAIT_S).value for future in futures] == list(range(20))


def test_threads_may_share_a_backend(shared):
    """PY-42"""
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        values = list(threads.map(lambda n: run(shared, "def f(x): return x", n).value, range(40)))
    assert values == list(range(40))


def test_a_hung_call_delays_no_other(shared):
    """PY-42"""
    hung = shared.submit(ft.Call(source="def f():\n    while True: pass", function="f"))
    wait_until(hung.running)
    assert [run(shared, "def f(x): return x", n).value for n in range(5)] == list(range(5))
    hung.cancel()
    assert hung.outcome(WAIT_S).verdict == "cancelled"


def test_the_queue_is_not_charged():
    """PY-42: ten calls of 0.2 s each on one slot, with 1 s for each"""
    source = "import time\ndef f(): time.sleep(0.2)"
    with ft.LocalBackend(1) as backend:
        futures = [backend.submit(ft.Call(source=source, function="f", timeout_s=1.0)) for _ in range(10)]
        outcomes = [future.outcome(WAIT_S) for future in futures]
    assert {outcome.verdict for outcome in outcomes} == {"ok"}
    assert outcomes[-1].metrics.queue_s > 1.0


def test_children_of_a_call_die_with_it(shared):
    """PY-42"""
    source = (
        "import os, subprocess\ndef f():\n"
        "    return subprocess.Popen(['setsid', 'sleep', '3600'], start_new_session=True).pid"
    )
    pid = run(shared, source).value
    wait_until(lambda: is_gone(pid), what="the end of the child")


def test_asyncio_gathers_many_calls(shared):
    """PY-37"""

    async def main():
        calls = (ft.Call(source="def f(x): return x", function="f", args=[n]) for n in range(20))
        return [outcome.value for outcome in await asyncio.gather(*(shared.aexecute(call) for call in calls))]

    assert asyncio.run(main()) == list(range(20))


def test_asyncio_with_failures_among_them(shared):
    """PY-37, PY-38"""

    async def main():
        sources = ["def f(): return 1", "def f(): 1 / 0", "import os\ndef f(): os._exit(3)"]
        calls = [ft.Call(source=source, function="f") for source in sources]
        return [outcome.verdict for outcome in await asyncio.gather(*(shared.aexecute(call) for call in calls))]

    assert asyncio.run(main()) == ["ok", "exception", "exit"]


# -- numbers


def test_metrics_say_what_a_call_cost(shared):
    """PY-40"""
    source = "import time\ndef f():\n    x = bytearray(60_000_000)\n    time.sleep(0.1)\n    return len(x)"
    metrics = run(shared, source).metrics
    assert 0.1 <= metrics.wall_s < WAIT_S and metrics.queue_s >= 0
    assert metrics.peak_rss_bytes > 60_000_000
    assert metrics.finished_at_ns - metrics.started_at_ns == pytest.approx(metrics.wall_s * 1e9, abs=1e6)
    assert metrics.worker_pid and len(metrics.worker_id) == 12 and metrics.node_id


def test_failed_calls_have_metrics_too(shared):
    """PY-40"""
    outcome = shared.execute(ft.Call(source="def f():\n    while True: pass", function="f", timeout_s=0.3))
    assert outcome.metrics.wall_s >= 0.3 and outcome.metrics.user_s > 0


def test_a_seed_makes_chance_repeatable(shared):
    """PY-42"""
    source = "import random\ndef f(): return random.random()"
    seeded = {run(shared, source, env={"FAIRTRIAL_SEED": "7"}).value for _ in range(3)}
    free = {run(shared, source).value for _ in range(3)}
    assert len(seeded) == 1 and len(free) == 3


def test_a_command_is_a_call_too(shared):
    """PY-40"""
    outcome = shared.execute(ft.Call(argv=["sh", "-c", "cat; echo err >&2; exit 3"], stdin="fed"))
    assert (outcome.verdict, outcome.exit.code, outcome.stdout, outcome.stderr) == ("exit", 3, "fed", "err\n")


def test_hooks_see_a_search_go_by():
    """PY-43"""
    counts, lock = {}, threading.Lock()

    def count(event):
        with lock:
            counts[event.name] = counts.get(event.name, 0) + 1

    with ft.LocalBackend(2) as backend:
        for name in ("submit", "start", "complete", "worker_start", "worker_exit", "shutdown"):
            getattr(backend, f"on_{name}")(count)
        for n in range(10):
            run(backend, "def f(x): return 1 // x", n % 2)
    assert counts["submit"] == counts["start"] == counts["complete"] == 10
    assert counts["shutdown"] == 1
