"""How often `fairtrial evaluate` is wrong about speed, and how often it finds a true change (CA-99).

    python3 bench/fairness.py BINARY [--pairs 200] [--slow 50]

Pairs of programs that do the same (A/A), and pairs where the candidate does 5 % more, each in an evaluation of its own,
with a busy process beside them and `min_effect: 0`, so that no margin hides an error. Writes the section `Fairness` of
bench/RESULTS.md.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "RESULTS.md"
AIM_S = 0.010
SLOWER = 0.05
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
    parser.add_argument("--no-write", action="store_true", help="leave bench/RESULTS.md alone")
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    with tempfile.TemporaryDirectory(prefix="fairtrial-fairness-") as folder:
        count, more = sizes()
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            same = [evaluate(binary, Path(folder), count, count, seed) for seed in range(options.pairs)]
            slow = [evaluate(binary, Path(folder), count, more, 10_000 + seed) for seed in range(options.slow)]
        finally:
            busy.kill()
            busy.wait()
    text = report(same, slow)
    print(text)
    if not options.no_write:
        write(text)
    return 0


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
            "yes" if holds else "**no**",
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


def write(text):
    whole = RESULTS.read_text()
    without = re.sub(r"\n## Fairness\n.*?(?=\n## |\Z)", "\n", whole, flags=re.DOTALL)
    RESULTS.write_text(without.rstrip() + "\n\n" + text)


if __name__ == "__main__":
    os.chdir(str(ROOT))
    sys.exit(main())
