"""Whole studies beside DRE's, in turns: time of no-op runs, of a resume, of plans and exports, and memory.

Fairtrial is the command, from its start to its end, with a durable journal and all tables. DRE is `run_study` inside a
host program, without that program's start; it isolates nothing and syncs nothing. Where it is not installed, ratios are
not measured.
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

from contender import high_water, interval, times
from contender import time as shown

ROOT = Path(__file__).resolve().parent.parent
DRE = ROOT / "python" / "tests" / "dre"
sys.path.insert(0, str(DRE))

from dre_environment import Missing, dre  # noqa: E402

WORKERS = 2
POLL_S = 0.01
STUDY = """\
study_id: bench
title: Bench
factors:
- {name: x, levels: [{name: a, value: 1}, {name: b, value: 2}]}
problem_ids: [p]
agent_specs: [a]
problems: {p: {}}
"""
AGENTS = """\
def noop(run): return {"output": {"v": 1}}
def noop_of_dre(problem_packet, seed): return {"output": {"v": 1}}
def spin(run): return {"output": {"v": sum(i * i for i in range(1_000_000))}}
def spin_of_dre(problem_packet, seed): return {"output": {"v": sum(i * i for i in range(1_000_000))}}
"""


class Sizes:
    def __init__(self, quick, rounds):
        self.runs, self.many, self.plan, self.spins = (200, 2000, 20_000, 8) if quick else (10_000, 100_000, 10**6, 40)
        self.rounds, self.are_small = min(rounds, 1 if quick else 3), quick


def measure(options):
    """{name: [seconds]}, with `_kib` for memory; names that begin with `dre` are missing where it is."""
    sizes = Sizes(options.quick, options.rounds)
    with tempfile.TemporaryDirectory(prefix="fairtrial-bench-") as folder:
        bench = Bench(Path(folder), sizes)
        for number in range(sizes.rounds):
            turns = [bench.dre, lambda: bench.fairtrial("reuse"), lambda: bench.fairtrial("fresh"), bench.spin]
            for turn in turns[number % 4 :] + turns[: number % 4]:
                turn()
            print("studies: round %d of %d" % (number + 1, sizes.rounds), file=sys.stderr, flush=True)
        bench.many()
        bench.plan()
        return bench.found, sizes


class Bench:
    def __init__(self, folder, sizes):
        self.folder, self.sizes, self.found = folder, sizes, {}
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        self.binary = str(target / "release" / "fairtrial")
        (folder / "agents.py").write_text(AGENTS)
        try:
            self.python = dre()
        except Missing as missing:
            print("bench: DRE is left out: %s" % missing, file=sys.stderr)
            self.python = None

    def dre(self):
        if self.python is None:
            return
        study = self.study("noop_of_dre", self.sizes.runs)
        self.keep("dre", self.host(study))
        self.keep("dre_resume", self.host(study, "--resume"))
        self.clear()

    def fairtrial(self, isolation):
        study = self.study("noop", self.sizes.runs, "isolation: %s" % isolation)
        self.keep(isolation, self.command("run", study, "--out", "out", "-j", WORKERS))
        if isolation == "reuse":
            self.keep("resume", self.command("run", study, "--out", "out", "--resume"))
        self.clear()

    def spin(self):
        """The same work by one worker and by two."""
        for jobs in (1, 2):
            study = self.study("spin", self.sizes.spins, "isolation: reuse")
            self.keep("spin_%d" % jobs, self.command("run", study, "--out", "out", "-j", jobs))
            self.clear()
            if self.python:
                study = self.study("spin_of_dre", self.sizes.spins)
                self.keep("dre_spin_%d" % jobs, self.host(study, "--jobs", jobs))
                self.clear()

    def many(self):
        study = self.study("noop", self.sizes.many, "isolation: reuse")
        self.keep("many", self.command("run", study, "--out", "out", "-j", WORKERS))
        self.keep("export", self.command("export", "out", "--to", "tables"))
        self.clear()

    def plan(self):
        self.keep("plan", self.command("plan", self.study("noop", self.sizes.plan)))

    def study(self, function, runs, *options):
        agent = ", ".join(["python: 'agents.py:%s'" % function, *options])
        budget = "run_budget: {replicates: %d}\n" % (runs // 2)
        path = self.folder / "study.yaml"
        path.write_text(STUDY + "agents: {a: {%s}}\n" % agent + budget)
        return path.name

    def keep(self, name, figures):
        seconds, kib = figures
        self.found.setdefault(name, []).append(seconds)
        self.found.setdefault(name + "_kib", []).append(kib)

    def host(self, study, *options):
        words = [self.python, str(DRE / "dre_host.py"), study, "out", *map(str, options)]
        said = json.loads(subprocess.run(words, cwd=self.folder, check=True, capture_output=True, text=True).stdout)
        return said["seconds"], said["peak_kib"]

    def command(self, *words):
        """Seconds of a command, and the most memory that its own process had."""
        began, peak = clock.monotonic(), 0
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([self.binary, *map(str, words)], cwd=self.folder, **quiet)
        while process.poll() is None:
            peak = max(peak, high_water(process.pid))
            try:
                process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                pass
        seconds = clock.monotonic() - began
        if process.returncode:
            sys.exit("bench: `fairtrial %s` ended with exit code %d" % (words[0], process.returncode))
        return seconds, peak

    def clear(self):
        for name in ("out", "tables"):
            shutil.rmtree(self.folder / name, ignore_errors=True)


# ---- reporting --------------------------------------------------------------------------------------------------


def report(measured):
    """Lines of Markdown."""
    found, sizes = measured
    lines = [
        "",
        "## Studies",
        "",
        "Fairtrial's command with a durable journal and all tables, %d workers; DRE in process, one worker, without"
        % WORKERS,
        "isolation or sync, its interpreter's start not counted. Each run is a no-op call of a Python function.",
        "",
        "| case | Fairtrial | beside | ratio | target | held |",
        "|---|---|---|---|---|---|",
    ]
    for *cells, held in rows(found, sizes):
        lines.append("| %s |" % " | ".join([*cells, "small sizes" if sizes.are_small else held]))
    lines += ["", memory(found, sizes)]
    return lines


def rows(found, sizes):
    runs, many, plan = (format(size, ",") for size in (sizes.runs, sizes.many, sizes.plan))
    yield faster("%s no-op runs, `reuse`" % runs, found, "reuse", "dre", 4, "4 times faster")
    yield slower("%s no-op runs, `fresh`" % runs, found, "fresh", "dre", 2.5, "at most 2.5 times DRE's time")
    yield faster("resume of %s finished runs" % runs, found, "resume", "dre_resume", 20, "20 times faster")
    seconds, kib = found["plan"][0], found["plan_kib"][0]
    held = yes(seconds <= 10 and kib * 1024 <= 200e6)
    yield "plan of %s runs" % plan, "%s, %s" % (shown(seconds), size(kib)), "", "", "10 s and 200 MB", held
    more = found["many_kib"][0] / statistics.median(found["reuse_kib"])
    both = "%s, %s" % (size(found["many_kib"][0]), size(statistics.median(found["reuse_kib"])))
    yield "engine's memory, %s runs and %s" % (many, runs), both, "", "%.2f" % more, "at most 1.2", yes(more <= 1.2)
    gain = interval(found["spin_1"], found["spin_2"])[0]
    theirs = "not measured"
    if "dre_spin_1" in found:
        theirs = "DRE: %.2f" % interval(found["dre_spin_1"], found["dre_spin_2"])[0]
    ours = ratio_of(found["spin_1"], found["spin_2"])
    yield "processor-bound agent, 2 workers against 1", ours, theirs, "", "at least 1.8", yes(gain >= 1.8)
    seconds = found["export"][0]
    yield "export of %s runs" % many, shown(seconds), "", "", "3 s", yes(seconds <= 3)


def faster(case, found, ours, theirs, least, target):
    if theirs not in found:
        return case, spread(found[ours]), "not installed", "not measured", target, ""
    ratio = interval(found[theirs], found[ours])[0]
    shown_ratio = ratio_of(found[theirs], found[ours])
    return (*beside(case, found, ours, theirs), shown_ratio, target, yes(ratio >= least))


def slower(case, found, ours, theirs, most, target):
    if theirs not in found:
        return case, spread(found[ours]), "not installed", "not measured", target, ""
    ratio = interval(found[ours], found[theirs])[0]
    shown_ratio = ratio_of(found[ours], found[theirs])
    return (*beside(case, found, ours, theirs), shown_ratio, target, yes(ratio <= most))


def beside(case, found, ours, theirs):
    return case, spread(found[ours]), "DRE: %s" % spread(found[theirs])


def spread(samples):
    """With an interval where there is more than one sample."""
    return times(interval(samples)) if len(samples) > 1 else shown(samples[0])


def ratio_of(samples, others):
    ratio, low, high = interval(samples, others)
    return "%.2f (%.2f to %.2f)" % (ratio, low, high) if len(samples) > 1 else "%.2f" % ratio


def memory(found, sizes):
    text = "Memory at %s runs: Fairtrial's engine %s" % (format(sizes.runs, ","), size(max(found["reuse_kib"])))
    return text + (", DRE %s." % size(max(found["dre_kib"])) if "dre_kib" in found else ".")


def size(kib):
    return "%.0f MB" % (kib * 1024 / 1e6)


def yes(holds):
    return "yes" if holds else "**no**"


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description="only the studies, printed")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--rounds", type=int, default=3, help="turns that each contender takes [default: 3]")
    print("\n".join(report(measure(parser.parse_args()))))
