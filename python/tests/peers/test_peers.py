"""What ProcessPoolExecutor, loky and Fairtrial do with the same programs.

    python -m pytest python/tests/peers               Fairtrial must do what is claimed; what peers do is printed
    python python/tests/peers/test_peers.py --write   also writes docs/peers.md

The binary is FAIRTRIAL_BIN, else target/debug/fairtrial. What a peer does never fails a test: where it differs from
docs/peers.md, that is printed.
"""

import concurrent.futures
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from peer_host import BLAS, SECRETS  # noqa: E402
from peer_processes import MARK, alive, descendants, end_marked, marked, wait_for  # noqa: E402

ROOT = HERE.parents[2]
PAGE = ROOT / "docs" / "peers.md"
BINARY = Path(os.environ.get("FAIRTRIAL_BIN") or ROOT / "target" / "debug" / "fairtrial").resolve()
PEERS = ["ppe", "loky"]
PEER_SECONDS = 10
FAIRTRIAL_SECONDS = 20
CASES = []
SEEN = {}  # what this run saw: (case, ppe, loky or fairtrial) -> words

INTRODUCTION = """# Compared with what you use now

The same small programs, given to `concurrent.futures.ProcessPoolExecutor`, to loky's reusable executor and to
`fairtrial batch`. Fairtrial's column is tested by CI; the peers' columns are what was seen when this page was written,
with Python %s and loky %s, at their defaults but for the notes below. Where a peer does as well, the table says
so too. `EX` numbers are requirements, which the tests in `python/tests/peers` name.

| | what happens | ProcessPoolExecutor | loky | Fairtrial |
|---|---|---|---|---|
"""

NOTES = """
- The backlog case gives `ProcessPoolExecutor` one worker and `max_tasks_per_child=2`; Fairtrial has one slot and ends
  each process after one call.
- loky's workers may be idle for 60 s before they end.
- Peers are cancelled by `Future.cancel()`, `fairtrial batch` by SIGINT.
- A timeout of a peer is `Future.result(timeout)`, Fairtrial's is `timeout_s`.

Written by `python python/tests/peers/test_peers.py --write`.
"""


def case(requirement, behaviour):
    def add(function):
        function.requirement, function.behaviour = requirement, behaviour
        CASES.append(function)
        return function

    return add


class Engine:
    """`fairtrial batch` with a mark on it and on its calls, in a directory of its own."""

    def __init__(self, directory):
        self.directory = str(directory)
        self.mark = uuid.uuid4().hex
        self.started = []

    def call(self, function, *args, **options):
        call = {"file": str(HERE / "peer_programs.py"), "function": function, "args": list(args)}
        call.update({"python": sys.executable, "env": {MARK: self.mark}}, **options)
        return json.dumps(call) + "\n"

    def start(self, jobs, calls=None, env=None):
        """The running engine; its calls come from a file, or from standard input."""
        path = "-"
        if calls is not None:
            path = os.path.join(self.directory, "calls.jsonl")
            Path(path).write_text("".join(calls))
        process = subprocess.Popen(
            [str(BINARY), "batch", path, "--no-progress", "-j", str(jobs)],
            stdin=subprocess.PIPE if calls is None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            universal_newlines=True,
            env=dict(clean_environment(self.mark), **(env or {})),
            start_new_session=True,
            preexec_fn=no_core,
        )
        self.started.append(process)
        return process

    def run(self, jobs, calls, env=None):
        output, _ = self.start(jobs, calls, env).communicate(timeout=FAIRTRIAL_SECONDS)
        records = [json.loads(line) for line in output.splitlines()]
        assert len(records) == len(calls)
        return records

    def signed(self):
        return [int(name) for name in os.listdir(self.directory) if name.isdigit()]

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()
        end_marked(self.mark)


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def clean_environment(mark):
    dropped = BLAS + SECRETS + ["PYTHONUNBUFFERED"]
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    # Peers have no level; and what a case writes for its test to see is outside of any scratch directory.
    return dict(kept, FAIRTRIAL_SANDBOX="none", **{MARK: mark})


def verdicts(records):
    return [record["verdict"] for record in records]


def assert_no_delay_after(engine, function):
    """Neither the next call on the slot nor the engine's end waits."""
    records = engine.run(1, [engine.call(function), engine.call("one")])
    ended_ns = time.time_ns()
    assert verdicts(records) == ["ok", "ok"]
    slow, after = [record["metrics"] for record in records]
    assert after["started_at_ns"] - slow["finished_at_ns"] < 3e9
    assert ended_ns - after["finished_at_ns"] < 3e9


@case("EX-3", "the host is killed with SIGKILL while 4 calls run")
def host_killed(engine):
    calls = [engine.call("sign_and_nap", engine.directory, 30) for _ in range(4)]
    process = engine.start(4, calls)
    assert wait_for(lambda: len(engine.signed()) == 4, FAIRTRIAL_SECONDS)
    family = descendants(process.pid)
    assert set(engine.signed()) <= set(family)
    process.kill()
    process.wait()
    wait_for(lambda: not any(map(alive, family)) and not marked(engine.mark), 1)
    assert [pid for pid in family if alive(pid)] == [] and marked(engine.mark) == []
    return "nothing left 1 s later"


@case("EX-8", "a call leaves an `atexit` function that takes 30 s")
def slow_atexit(engine):
    assert_no_delay_after(engine, "slow_atexit")
    return "no delay"


@case("EX-8", "a call leaves a non-daemon thread that takes 30 s")
def slow_thread(engine):
    assert_no_delay_after(engine, "slow_thread")
    return "no delay"


@case("EX-13", "8 calls, one after the other, on 8 slots")
def on_demand(engine):
    process = engine.start(8)
    workers = set()
    for _ in range(8):
        process.stdin.write(engine.call("process", isolation="reuse"))
        process.stdin.flush()
        workers.add(json.loads(process.stdout.readline())["value"])
    process.stdin.close()
    process.wait(FAIRTRIAL_SECONDS)
    assert len(workers) == 1
    return "1 worker for 8 calls in turn"


@case("EX-17", "a backlog of 20 calls for workers that are replaced")
def backlog(engine):
    records = engine.run(1, [engine.call("process") for _ in range(20)])
    assert verdicts(records) == ["ok"] * 20
    assert len({record["metrics"]["worker_id"] for record in records}) == 20
    return "all 20 done"


@case("EX-23", "one of 4 calls crashes")
def crash(engine):
    calls = [engine.call("nap", 1) for _ in range(3)] + [engine.call("abort_after", 0.3), engine.call("one")]
    assert verdicts(engine.run(4, calls)) == ["ok", "ok", "ok", "signal", "ok"]
    return "works: 0 siblings failed"


@case("EX-24", "one of 2 workers is killed, 10 calls submitted")
def worker_killed(engine):
    process = engine.start(2, [engine.call("sign_and_nap", engine.directory, 0.5) for _ in range(10)])
    assert wait_for(engine.signed, FAIRTRIAL_SECONDS)
    os.kill(engine.signed()[0], signal.SIGKILL)
    output, _ = process.communicate(timeout=FAIRTRIAL_SECONDS)
    assert sorted(verdicts(map(json.loads, output.splitlines()))) == ["ok"] * 9 + ["signal"]
    return "1 of 10 failed"


@case("EX-32", "a call changes cwd, `os.environ`, `sys.path` and a module; the next one looks")
def state(engine):
    records = engine.run(1, [engine.call("pollute"), engine.call("polluted")])
    assert verdicts(records) == ["ok", "ok"] and records[1]["value"] == []
    return "seen: nothing"


@case("EX-38, EX-39", "the host has secrets in its environment")
def environment(engine):
    (record,) = engine.run(1, [engine.call("secrets", SECRETS)], env=dict.fromkeys(SECRETS, "hidden"))
    assert record["verdict"] == "ok" and record["value"] == []
    return "in neither"


@case("EX-44", "variables that cap the threads of BLAS libraries")
def threads(engine):
    caps = []
    for jobs in (1, 2):
        (record,) = engine.run(jobs, [engine.call("variables", BLAS)])
        assert sorted(record["value"]) == sorted(BLAS) and len(set(record["value"].values())) == 1
        caps.append(int(record["value"]["OMP_NUM_THREADS"]))
    assert 1 <= caps[0] <= os.cpu_count() and caps[1] == max(1, caps[0] // 2)
    return "7 of 7 set, to processors / workers"


@case("EX-45", "8 calls of 0.2 s on one slot, each with a timeout of 0.7 s")
def queue_time(engine):
    assert verdicts(engine.run(1, [engine.call("nap", 0.2, timeout_s=0.7) for _ in range(8)])) == ["ok"] * 8
    return "0 of 8 timed out"


@case("EX-47", "2 of 4 calls pass their timeout")
def timeout(engine):
    calls = [engine.call("sign_and_nap", engine.directory, 30, timeout_s=0.5) for _ in range(2)]
    assert verdicts(engine.run(4, calls + [engine.call("nap", 1.5)] * 2)) == ["timeout", "timeout", "ok", "ok"]
    assert not any(map(alive, engine.signed()))
    return "killed"


@case("EX-47", "their siblings, when the hung calls are killed")
def timeout_siblings(engine):
    calls = [engine.call("nap", 30, timeout_s=0.5) for _ in range(2)] + [engine.call("nap", 1.5) for _ in range(2)]
    records = engine.run(4, calls)
    assert verdicts(records) == ["timeout", "timeout", "ok", "ok"]
    return "0 siblings failed"


@case("EX-48", "a call leaves a double-forked child in its own session")
def escaped(engine):
    process = engine.start(1)
    process.stdin.write(engine.call("escape"))
    process.stdin.flush()
    record = json.loads(process.stdout.readline())
    assert record["verdict"] == "ok" and wait_for(lambda: not alive(record["value"]), 1)
    return "dead with the call"


@case("EX-49", "a running call is cancelled")
def cancel(engine):
    process = engine.start(1, [engine.call("sign_and_nap", engine.directory, 30)])
    assert wait_for(engine.signed, FAIRTRIAL_SECONDS)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=FAIRTRIAL_SECONDS)
    assert process.returncode == 130 and not alive(engine.signed()[0])
    return "killed"


@case("EX-51", "where a call that timed out was hanging")
def stack(engine):
    # Best effort: it is waited for 5 ms, which a loaded machine can miss (2 and 3 of 40 calls at a load of 3 per
    # processor), so one stack of five is enough here.
    records = engine.run(1, [engine.call("hang", timeout_s=0.5) for _ in range(5)])
    assert verdicts(records) == ["timeout"] * 5
    assert any("wait_for_rain" in (record["error"]["traceback"] or "") for record in records)
    return "stack given (best effort: can be missing under load)"


@case("EX-64", "an answer whose pickle cannot be read")
def bad_pickle(engine):
    calls = [engine.call("nap", 1), engine.call("unreadable", result="pickle"), engine.call("one")]
    assert verdicts(engine.run(2, calls)) == ["ok", "ok", "ok"]
    return "not read: 0 siblings failed"


@case("EX-64", "an answer whose pickle runs code when read")
def pickle_runs(engine):
    path = os.path.join(engine.directory, "made-by-unpickling")
    (record,) = engine.run(1, [engine.call("opens", path, result="pickle")])
    assert record["verdict"] == "ok" and "$pickle" in record["value"] and not os.path.exists(path)
    return "not run"


@case("EX-72", 'verdict of `KeyError("MemoryError")`')
def heuristics(engine):
    (record,) = engine.run(1, [engine.call("misleading")])
    assert record["verdict"] == "exception" and record["error"]["type"] == "KeyError"
    return "`exception`"


@case("EX-76", "an exception with a message of 100,000 characters")
def long_message(engine):
    (record,) = engine.run(1, [engine.call("long_message")])
    assert record["error"]["message"] == "x" * 100000
    return "whole"


@case("EX-77", "output of a call that crashes: `print`, `os.write`, a child's")
def output(engine):
    (record,) = engine.run(1, [engine.call("talk_and_abort")])
    assert record["verdict"] == "signal"
    lost = [word for word in ("print", "write", "a child") if "said by " + word not in record["stdout"]]
    assert lost == []
    return "captured"


@case("EX-83", "peak memory of a tiny call after one of 200 MiB, in one worker")
def peak(engine):
    calls = [engine.call("peak_after", size, isolation="reuse") for size in (200 << 20, 1)]
    big, tiny = [record["metrics"] for record in engine.run(1, calls)]
    assert big["worker_id"] == tiny["worker_id"]
    assert big["peak_rss_bytes"] > 200 << 20 and tiny["peak_rss_bytes"] < 60 << 20
    return "exact for each call"


def run_peer(kind, name):
    """What a peer did, in a few words; nothing of it is left."""
    if kind == "loky":
        try:
            import loky  # noqa: F401
        except ImportError:
            return "not installed"
    mark = uuid.uuid4().hex
    directory = tempfile.mkdtemp(prefix="fairtrial-peers-")
    try:
        with open(os.path.join(directory, "output"), "wb") as out:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "peer_host.py"), kind, name, directory],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(clean_environment(mark), **dict.fromkeys(SECRETS, "hidden")),
                start_new_session=True,
                preexec_fn=no_core,
            )
            try:
                process.wait(PEER_SECONDS)
            except subprocess.TimeoutExpired:
                return "hung (over %d s)" % PEER_SECONDS
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
                end_marked(mark)
        cell = Path(directory, "cell")
        return cell.read_text() if cell.exists() else "host died"
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_peers(cases):
    with concurrent.futures.ThreadPoolExecutor(4) as threads_of_peers:
        futures = {
            (one.__name__, kind): threads_of_peers.submit(run_peer, kind, one.__name__)
            for one in cases
            for kind in PEERS
        }
    SEEN.update({key: future.result() for key, future in futures.items()})


def run_fairtrial(one):
    directory = tempfile.mkdtemp(prefix="fairtrial-peers-")
    engine = Engine(directory)
    try:
        SEEN[one.__name__, "fairtrial"] = one(engine)
    finally:
        engine.close()
        shutil.rmtree(directory, ignore_errors=True)


def row(one):
    cells = [SEEN.get((one.__name__, kind), "not run") for kind in PEERS + ["fairtrial"]]
    return [one.requirement, one.behaviour] + cells


def documented():
    """The rows of docs/peers.md by behaviour."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| EX-")]
    return {cells[1]: cells for cells in rows}


def summary():
    """The table of this run, and where peers differ from docs/peers.md."""
    lines = ["%s %s\n    ppe: %s\n    loky: %s\n    fairtrial: %s" % tuple(row(one)) for one in CASES if ran(one)]
    for one in filter(ran, CASES):
        then = documented().get(one.behaviour)
        for name, index in (("ppe", 2), ("loky", 3)):
            if then and then[index] != row(one)[index]:
                lines.append("differs from docs/peers.md, no fault: %s, %s: %s" % (one.behaviour, name, then[index]))
    return "\n".join(lines)


def ran(one):
    return (one.__name__, "fairtrial") in SEEN or (one.__name__, "ppe") in SEEN


def write():
    try:
        import loky

        version = loky.__version__
    except ImportError:
        sys.exit("test_peers.py: install loky first (requirements-test.txt)")
    python = re.match(r"\d+\.\d+\.\d+", platform.python_version()).group()
    rows = "".join("| %s |\n" % " | ".join(row(one)) for one in CASES)
    PAGE.write_text(INTRODUCTION % (python, version) + rows + NOTES)


@pytest.fixture(scope="module")
def peers(request):
    names = {item.callspec.params["one"] for item in request.session.items if "peers" in item.fixturenames}
    if not os.access(BINARY, os.X_OK):
        reason = "no binary at FAIRTRIAL_BIN or target/debug/fairtrial: build it first"
        print(reason)
        pytest.skip(reason)
    run_peers([one for one in CASES if one in names])


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.__name__)
def test_case(one, peers):
    run_fairtrial(one)
    then = documented().get(one.behaviour)
    assert then is not None, "docs/peers.md lacks this row: run test_peers.py --write"
    assert (then[0], then[4]) == (one.requirement, SEEN[one.__name__, "fairtrial"])


def test_page_has_these_rows_only():
    assert list(documented()) == [one.behaviour for one in CASES]


def main():
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit("usage: test_peers.py [--write]")
    if not os.access(BINARY, os.X_OK):
        sys.exit("test_peers.py: no binary at FAIRTRIAL_BIN or target/debug/fairtrial: build it first")
    run_peers(CASES)
    for one in CASES:
        run_fairtrial(one)
    print(summary())
    if sys.argv[1:]:
        write()


if __name__ == "__main__":
    main()
