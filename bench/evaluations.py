"""Workspaces and whole evaluations beside git and bare processes (CA-98), in turns.

`bench_engine` runs a program that does nothing in a workspace of 5,000 files; git makes, resets and cleans a work tree
of as many on the same disk.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time as clock
from pathlib import Path

from contender import Peer
from contender import time as shown

ROOT = Path(__file__).resolve().parent.parent
FILES = 5_000
GIT = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "core.fsync=none"]
SPIN = "import time\nwhile time.process_time() < %r: pass\n"


def measure(options):
    """{name: [numbers]}."""
    found = {}
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    engine = Peer([str(target / "release" / "bench_engine"), sys.executable])
    with tempfile.TemporaryDirectory(prefix="fairtrial-bench-") as folder:
        bench = Bench(Path(folder), str(target / "release" / "fairtrial"), found, options.quick)
        try:
            bench.make_repository()
            for _ in range(3 if options.quick else 10):
                bench.git_turn()
                bench.workspace_turn(engine)
                bench.bare_turn()
        finally:
            engine.end()
        bench.forty()
        bench.loud()
    return found


class Bench:
    def __init__(self, folder, binary, found, quick):
        self.folder, self.binary, self.found, self.quick = folder, binary, found, quick
        self.repo = folder / "repo"

    def keep(self, name, value):
        self.found.setdefault(name, []).append(value)

    def timed(self, name, work):
        began = clock.perf_counter()
        work()
        self.keep(name, clock.perf_counter() - began)

    def git(self, *arguments, cwd=None):
        subprocess.run([*GIT, *arguments], cwd=str(cwd or self.repo), check=True, stdout=subprocess.DEVNULL)

    def make_repository(self):
        for number in range(FILES):
            path = self.repo / str(number % 10) / str(number % 100)
            path.mkdir(parents=True, exist_ok=True)
            (path / str(number)).write_text("file %d\n" % number * 100)
        (self.repo / "spin.py").write_text(SPIN % (0.2 if self.quick else 1.0))
        (self.repo / "value.txt").write_text("base\n")
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", "base")

    def git_turn(self):
        tree = self.folder / "worktree"
        self.timed("git_prepare", lambda: self.git("worktree", "add", "--quiet", "--detach", str(tree)))
        for number in range(3):
            (tree / str(number) / str(number) / str(number)).write_text("changed\n")
        (tree / "4" / "4" / "4").unlink()
        for number in range(20):
            (tree / ("new-%d" % number)).write_text("new\n")

        def reset():
            self.git("reset", "--quiet", "--hard", cwd=tree)
            self.git("clean", "-fdxq", cwd=tree)

        self.timed("git_reset", reset)
        self.git("worktree", "remove", "--force", str(tree))

    def workspace_turn(self, engine):
        for how in ("bare", "userns"):
            answer = engine.ask("workspace %s 10" % how)
            self.found.setdefault("to_exec_" + how, []).extend(answer["to_exec"])
            self.found.setdefault("whole_" + how, []).extend(answer["whole"])

    def bare_turn(self):
        for _ in range(10):
            began = clock.perf_counter()
            os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
            self.keep("bare", clock.perf_counter() - began)

    def evaluate(self, name, count, command):
        """Runs an evaluation without measurement; gives its time, peak memory and peak disk."""
        place = self.folder / name
        place.mkdir()
        lines = [json.dumps({"files": {"value.txt": "candidate %d\n" % number}}) for number in range(count)]
        (place / "candidates.jsonl").write_text("\n".join(lines) + "\n")
        spec = {
            "version": 1,
            "repo": str(self.repo),
            "candidates": {"jsonl": "candidates.jsonl"},
            "tests": [{"command": command}],
            "baseline": {"runs": 1},
            "parallel": 2,
            "output": "out",
            "limits": {"output": "none"},
        }
        (place / "EVAL.json").write_text(json.dumps(spec))
        cache = place / "cache"
        environment = dict(os.environ, FAIRTRIAL_CACHE_DIR=str(cache))
        began = clock.perf_counter()
        command = [self.binary, "evaluate", str(place / "EVAL.json"), "--no-progress"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        memory = disk = 0
        while process.poll() is None:
            memory = max(memory, resident(process.pid))
            disk = max(disk, used(cache / "workspaces"))
            clock.sleep(0.5)
        seconds = clock.perf_counter() - began
        if process.returncode != 0:
            sys.exit("bench: the evaluation `%s` ended with %d" % (name, process.returncode))
        shutil.rmtree(str(place))
        return seconds, memory, disk

    def forty(self):
        count = 8 if self.quick else 40
        # What comes before and after the tests, once and however long they take: snapshot, history, report.
        beside, _, _ = self.evaluate("none", 1, ["true"])
        seconds, _, disk = self.evaluate("forty", count, [sys.executable, "-S", "spin.py"])
        one = 0.2 if self.quick else 1.0
        baseline = one
        self.keep("phase_1", (seconds - beside - baseline) / (count * one / 2))
        self.keep("disk", disk / (count * used(self.repo)))

    def loud(self):
        few, many = (2, 10) if self.quick else (20, 200)
        loud = "head -c 50000000 /dev/zero"
        self.keep("memory_few", self.evaluate("few", few, loud)[1])
        self.keep("memory_many", self.evaluate("many", many, loud)[1])


def resident(pid):
    try:
        text = Path("/proc/%d/status" % pid).read_text()
    except OSError:
        return 0
    lines = [line for line in text.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


def used(directory):
    """Bytes on disk below a directory."""
    total = 0
    for above, _, names in os.walk(str(directory)):
        for name in names:
            try:
                total += os.lstat(os.path.join(above, name)).st_blocks * 512
            except OSError:
                pass  # it went meanwhile
    return total


def report(found):
    rows = list(table(found))
    lines = [
        "",
        "## Evaluations",
        "",
        "A repository of 5,000 files. A workspace is an overlay made for one command; its cost is the time from",
        "submission to exec, beside a command without one. Resetting it is making the next.",
        "",
        "| CA-98 | Fairtrial | beside | ratio | target | held |",
        "|---|---|---|---|---|---|",
    ]
    return lines + ["| %s |" % " | ".join(row) for row in rows] + [""]


def table(found):
    middle = {name: statistics.median(values) for name, values in found.items()}
    prepare = middle["to_exec_userns"] - middle["to_exec_bare"]
    whole = middle["whole_userns"] - middle["whole_bare"]
    ratio = middle["git_prepare"] / prepare
    git = "`git worktree add`: %s" % shown(middle["git_prepare"])
    yield "a: prepare a workspace", shown(prepare), git, "%.0f" % ratio, "50 times faster", yes(ratio >= 50)
    ratio = middle["git_reset"] / whole
    git = "`git reset`, `git clean`: %s" % shown(middle["git_reset"])
    yield "b: reset it", shown(whole), git, "%.1f" % ratio, "2 times faster", yes(ratio >= 2)
    phase = middle["phase_1"]
    yield (
        "c: tests of 40 candidates of 1 s, 2 processors",
        "",
        "ideal",
        "%.2f" % phase,
        "at most 1.10",
        yes(phase <= 1.10),
    )
    added = middle["whole_userns"] - middle["bare"]
    bare = "fork and exec: %s" % shown(middle["bare"])
    yield "d: added to a process", shown(added), bare, "", "at most 5 ms", yes(added <= 0.005)
    disk = middle["disk"]
    yield "f: disk of 40 prepared candidates", "", "40 copies", "%.4f" % disk, "at most 0.05", yes(disk <= 0.05)
    memory = middle["memory_many"] / middle["memory_few"]
    sizes = "%.0f MB, %.0f MB" % (middle["memory_many"] / 1e6, middle["memory_few"] / 1e6)
    yield "g: memory, 200 loud candidates and 20", sizes, "", "%.2f" % memory, "at most 1.5", yes(memory <= 1.5)


def yes(holds):
    return "yes" if holds else "**no**"


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description="only the evaluations, printed")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    print("\n".join(report(measure(parser.parse_args()))))
