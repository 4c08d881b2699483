"""How often `fairtrial evaluate` is wrong about speed, and how often it finds a true change (CA-99).

    python3 bench/fairness.py BINARY [--pairs 200] [--slow 50] [--start-up 10]

Pairs of programs that do the same (A/A), and pairs where the candidate does 5 % more, each in an evaluation of its own,
with a busy process beside them and `min_effect: 0`, so that no margin hides an error. Then evaluations of
examples/unique, whose bench takes 100 ms to start, beside two busy processes: the ratio of its loops must be that which
both functions show when they are timed within one process. Writes the sections `Fairness` and `Start-up` of
bench/RESULTS.md.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "RESULTS.md"
UNIQUE = ROOT / "examples" / "unique"
AIM_S = 0.010
SLOWER = 0.05
# How far ratios may be from each other and from the truth.
CLOSE = 0.10
# Times both functions in turns on the list that the bench uses; prints how long a call of each takes. On one processor
# and ahead of others where that is allowed, as evaluations run: a busy sibling slows the functions down unequally.
IN_PROCESS = """
import os, statistics, sys, time

try:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
except OSError:
    pass

def function(path):
    names = {}
    exec(open(path).read(), names)
    return names["unique"]

base, candidate = map(function, sys.argv[1:])
items = [number * 7 % 400 for number in range(660)]
found = [], []
for _ in range(60):
    for side, (call, times) in enumerate(((base, 20), (candidate, 1000))):
        began = time.process_time()
        for _ in range(times):
            call(items)
        found[side].append((time.process_time() - began) / times)
print(*map(statistics.median, found))
"""
EVAL = """\
version: 1
repo: repo
candidates: {{jsonl: candidates.jsonl}}
tests: [{{command: ["true"]}}]
baseline: {{runs: 1}}
bench: [{{name: work, command: [awk, -f, work.awk], loops: 1}}]
measure: {{min_effect: 0, racing: false, confirm: false, seed: {seed}}}
output: {output}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--pairs", type=int, default=200, help="A/A pairs [default: 200]")
    parser.add_argument("--slow", type=int, default=50, help="pairs with a true slowdown of 5 %% [default: 50]")
    parser.add_argument("--start-up", type=int, default=10, help="evaluations of examples/unique [default: 10]")
    parser.add_argument("--no-write", action="store_true", help="leave bench/RESULTS.md alone")
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    with tempfile.TemporaryDirectory(prefix="fairtrial-fairness-") as folder:
        if options.pairs or options.slow:
            count, more = sizes()
            with busy(1):
                same = [evaluate(binary, Path(folder), count, count, seed) for seed in range(options.pairs)]
                slow = [evaluate(binary, Path(folder), count, more, 10_000 + seed) for seed in range(options.slow)]
            publish("Fairness", report(same, slow), options)
        if options.start_up:
            with busy(2):
                truth = in_process()
                found = [evaluate_unique(binary, Path(folder), seed) for seed in range(options.start_up)]
            publish("Start-up", report_start_up(found, truth), options)
    return 0


class busy:
    """So many busy processes for a while."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        command = [sys.executable, "-c", "while True: pass"]
        self.processes = [subprocess.Popen(command) for _ in range(self.count)]

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def publish(title, text, options):
    print(text)
    if not options.no_write:
        write(title, text)


def program(count):
    return "BEGIN { for (i = 0; i < %d; i++) x += i }\n" % count


def timed(count):
    """The best of many, on a machine that is not busy yet."""
    best = float("inf")
    for _ in range(30):
        began = time.perf_counter()
        subprocess.run(["awk", program(count)], check=True)
        best = min(best, time.perf_counter() - began)
    return best


def sizes():
    """Loops that take about 10 ms, and those that take 5 % more, the start of the program counted."""
    start, trial = timed(0), 200_000
    each = (timed(trial) - start) / trial
    count = int((AIM_S - start) / each) if start < AIM_S else trial
    return count, count + int(SLOWER * (start + count * each) / each)


def evaluate(binary, folder, count, candidate, seed):
    """What was said of a candidate that loops so often."""
    place = folder / str(seed)
    (place / "repo").mkdir(parents=True)
    (place / "repo" / "work.awk").write_text(program(count))
    # A comment makes it another candidate, and the same program: in Awk nobody compares syntax trees.
    files = {"work.awk": program(candidate) + "# candidate\n"}
    (place / "candidates.jsonl").write_text(json.dumps({"name": "candidate", "files": files}) + "\n")
    (place / "EVAL.yaml").write_text(EVAL.format(seed=seed, output=place / "out"))
    command = [binary, "evaluate", str(place / "EVAL.yaml"), "--json", "--no-progress"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit("fairness: pair %d: %s" % (seed, done.stderr.decode(errors="replace")))
    found = json.loads(done.stdout)["evaluations"][0]["judgement"]
    print(
        "pair %d: %s %.3f [%.3f, %.3f]" % (seed, found["verdict"], found["ratio"], found["low"], found["high"]),
        file=sys.stderr,
    )
    return found


def in_process():
    """How long a call takes in the base and in the candidate, by processor time within one process."""
    sides = [UNIQUE / "repo" / "unique.py", UNIQUE / "candidates" / "dict" / "unique.py"]
    command = [sys.executable, "-c", IN_PROCESS, *map(str, sides)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, universal_newlines=True)
    return tuple(map(float, done.stdout.split()))


def evaluate_unique(binary, folder, seed):
    """The evaluation of the candidate, and of the bench its times."""
    place = folder / ("unique-%d" % seed)
    shutil.copytree(str(UNIQUE), str(place))
    spec = (place / "EVAL.yaml").read_text() + "measure: {seed: %d}\n" % seed
    (place / "EVAL.yaml").write_text(spec)
    command = [binary, "evaluate", str(place / "EVAL.yaml"), "--json", "--no-progress"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit("fairness: start-up, seed %d: %s" % (seed, done.stderr.decode(errors="replace")))
    whole = json.loads(done.stdout)
    one = whole["evaluations"][0]
    found = one["judgement"]
    line = "unique %d: %s %.4f [%.4f, %.4f]" % (seed, found["verdict"], found["ratio"], found["low"], found["high"])
    print(line, file=sys.stderr)
    return one, whole["measurement"]["benches"]["unique"]


def report_start_up(found, truth):
    base, candidate = truth
    true_ratio = candidate / base
    lines = [
        "## Start-up",
        "",
        "`examples/unique` takes 100 ms to start; its candidate is %.0f times faster. Within one process, on the same"
        % (1 / true_ratio),
        "processor, ahead of others and beside the same load, a call takes %.0f µs of processor time in the base and"
        % (base * 1e6),
        "%.1f µs in the candidate: a ratio of %.4f. %d evaluations beside two busy processes on %d processors"
        % (candidate * 1e6, true_ratio, len(found), os.cpu_count()),
        "(`make fairness`, %s)." % time.strftime("%Y-%m-%d"),
        "",
        "| evaluation | verdict | ratio | interval | from the truth | loops of base and candidate | of whole runs |",
        "|---|---|---|---|---|---|---|",
    ]
    ratios = []
    for number, (one, bench) in enumerate(found, 1):
        said = one["judgement"]
        sides = bench["sides"]
        own, base_times = sides[one["id"]], sides["base"]
        # What equal counts would have given without subtracting: start-up, and as many loops of each.
        startup, loops = base_times["startup_s"], base_times["loops"]
        gross = (startup + loops * own["per_loop_s"]) / (startup + loops * base_times["per_loop_s"])
        ratios.append(said["ratio"])
        lines.append(
            "| %d | %s | %.4f | [%.4f, %.4f] | %+.1f %% | %d, %d | %.2f |"
            % (
                number,
                said["verdict"],
                said["ratio"],
                said["low"],
                said["high"],
                100 * (said["ratio"] / true_ratio - 1),
                base_times["loops"],
                own["loops"],
                gross,
            )
        )
    faster = sum(one["judgement"]["verdict"] == "faster" for one, _ in found)
    apart = max(ratios) / min(ratios) - 1
    off = max(abs(ratio / true_ratio - 1) for ratio in ratios)
    lines += [
        "",
        "| claim | found | target | held |",
        "|---|---|---|---|",
        "| said to be faster | %d of %d | all | %s |" % (faster, len(found), held(faster == len(found))),
        "| ratios, largest by smallest | %+.1f %% | at most 10 %% | %s |" % (100 * apart, held(apart <= CLOSE)),
        "| furthest from the truth | %.1f %% | at most 10 %% | %s |" % (100 * off, held(off <= CLOSE)),
        "",
        "Of whole runs: the ratio that start-up and as many loops of both sides would have given.",
        "",
    ]
    return "\n".join(lines)


def held(holds):
    return "yes" if holds else "**no**"


def report(same, slow):
    def count(found, verdict):
        return sum(one["verdict"] == verdict for one in found)

    def row(case, number, total, target, holds):
        share = 100 * number / total if total else 0
        return "| %s | %d of %d (%.1f %%) | %s | %s |" % (
            case,
            number,
            total,
            share,
            target,
            held(holds),
        )

    faster, slower, detected = count(same, "faster"), count(same, "slower"), count(slow, "slower")
    lines = [
        "## Fairness",
        "",
        "A program of about 10 ms, a busy process beside it, `min_effect: 0`, at most 40 blocks (`make fairness`, %s)."
        % time.strftime("%Y-%m-%d"),
        "",
        "| case | found | target | held |",
        "|---|---|---|---|",
        row("A/A pairs said to be faster", faster, len(same), "at most 5 %", faster <= 0.05 * len(same)),
        row("A/A pairs said to be slower", slower, len(same), "", True),
        row("true slowdown of 5 % found", detected, len(slow), "at least 90 %", detected >= 0.9 * len(slow)),
        "",
    ]
    return "\n".join(lines)


def write(title, text):
    whole = RESULTS.read_text()
    without = re.sub(r"\n## %s\n.*?(?=\n## |\Z)" % title, "\n", whole, flags=re.DOTALL)
    RESULTS.write_text(without.rstrip() + "\n\n" + text)


if __name__ == "__main__":
    os.chdir(str(ROOT))
    sys.exit(main())
