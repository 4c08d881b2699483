"""Whether a verdict depends on what else the machine does (FA-17).

    python3 bench/steady.py BINARY [--runs 10000 | --quick] [--no-write]

Programs of known need are given limits of which they use 20 to 300 %, alone and several at a time, on a machine that
does nothing else and beside programs that burn processors, stream through memory and write to disk. They are judged by
processor time, and, a tenth as often, by wall time. A flip is an outcome that the need alone does not explain:
`timeout` below 100 %, or anything else above. What a program needs alone is measured anew before each situation, for
processors change their speed with whatever else the hardware does. Writes the section `Steady` of bench/RESULTS.md.

Exit code 1 if a program of at most 80 % or at least 125 % flipped when judged by processor time, or one of 90 or 110 %
flipped more often than alone.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "RESULTS.md"
FRACTIONS = (0.2, 0.5, 0.8, 0.9, 1.1, 1.25, 3.0)
CALIBRATIONS = 25

PROGRAMS = {
    "arithmetic": """
def f(units):
    x = 0
    for i in range(units * 9_000):
        x += i * i % 7
    return x
""",
    # Random steps through 16 MiB, which is more than a processor's own caches hold.
    "cache": """
from array import array
def f(units):
    size = 1 << 21
    table, at, total = array("q", bytes(8 * size)), 1, 0
    for _ in range(units * 3_500):
        at = (at * 1103515245 + 12345) % size
        table[at] += 1
        total += table[at]
    return total
""",
    "allocating": """
def f(units):
    kept = []
    for i in range(units * 2_000):
        kept.append([i, str(i)])
        if len(kept) > 50_000:
            kept = []
    return len(kept)
""",
    "sleeping": """
import time
def f(units):
    x = 0
    for _ in range(units):
        for i in range(8_000):
            x += i * i % 7
        time.sleep(0.001)
    return x
""",
    # The hash lets other threads go on.
    "threaded": """
import hashlib, threading
def f(units):
    block = bytes(1 << 20)
    def work():
        for _ in range(units // 2):
            hashlib.sha256(block).digest()
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
""",
}
UNITS = 40

BESIDE = {
    "burners": "while True:\n    pass",
    "streamers": "a = bytearray(1 << 26)\nb = bytearray(1 << 26)\nwhile True:\n    a[:] = b",
    "writers": "import os, sys\nblock = os.urandom(1 << 20)\nwhile True:\n    with open(sys.argv[1], 'wb') as file:\n"
    "        for _ in range(16):\n            file.write(block)\n            os.fsync(file.fileno())",
}
# How many at a time, and beside what.
SITUATIONS = (
    (1, None),
    (2, None),
    (8, None),
    (32, None),
    (8, "burners"),
    (8, "streamers"),
    (8, "writers"),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--runs", type=int, default=10_000, help="runs judged by processor time [default: 10000]")
    parser.add_argument("--quick", action="store_true", help="two runs of each kind")
    parser.add_argument("--no-write", action="store_true", help="leave bench/RESULTS.md alone")
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    cells = len(PROGRAMS) * len(FRACTIONS) * len(SITUATIONS)
    each = 2 if options.quick else math.ceil(options.runs / cells)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fairtrial-steady-") as folder:
        for name, source in PROGRAMS.items():
            Path(folder, name + ".py").write_text(source)
        found = defaultdict(Counter)
        alone = Counter()
        for at_once, beside in SITUATIONS:
            needs = {name: calibrate(binary, folder, name) for name in PROGRAMS}
            for judge, runs in (("cpu", each), ("wall", max(1, each // 10))):
                with disturbed(beside, folder):
                    seen, again = trial(binary, folder, needs, judge, at_once, runs)
                for (name, fraction), flips in seen.items():
                    found[judge, at_once, beside, name, fraction] += flips
                alone[judge, at_once, beside] += again
                flips = sum(counts["flips"] for counts in seen.values())
                runs = sum(counts["runs"] for counts in seen.values())
                print(f"{situation(at_once, beside)}, {judge}: {flips} of {runs} flipped", flush=True)
    text, faults = report(found, alone, needs, time.monotonic() - began)
    print(text)
    if not options.no_write:
        write(text)
    for fault in faults:
        print("steady:", fault, file=sys.stderr)
    return 1 if faults else 0


def call(name, limit_s, judge, number):
    line = {"id": number, "file": name + ".py", "function": "f", "args": [UNITS], "timeout_s": limit_s, "time": judge}
    return json.dumps(line) + "\n"


def batch(binary, folder, lines, at_once):
    command = [binary, "batch", "-", "-j", str(at_once)]
    done = subprocess.run(command, input="".join(lines), cwd=folder, capture_output=True, text=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    if len(records) != len(lines):
        raise SystemExit(f"{len(lines)} calls gave {len(records)} records:\n{done.stderr}")
    return records


def calibrate(binary, folder, name):
    """What one program needs alone: processor time, and wall time."""
    records = batch(binary, folder, [call(name, 30, "cpu", number) for number in range(CALIBRATIONS)], 1)
    wrong = [record for record in records if record["verdict"] != "ok"]
    if wrong:
        raise SystemExit(f"`{name}` fails alone: {wrong[0]['error']}")
    metrics = [record["metrics"] for record in records]
    cpu = statistics.median(30 * each["margin"]["used"] for each in metrics)
    # What it would take on a machine that does nothing else.
    wall = statistics.median(each["wall_s"] - (each["wait_s"] or 0) for each in metrics)
    return {"cpu": cpu, "wall": wall}


class disturbed:  # noqa: N801
    """With programs beside it, two for each processor; writers one."""

    def __init__(self, kind, folder):
        self.kind, self.folder, self.processes = kind, folder, []

    def __enter__(self):
        if self.kind is None:
            return
        count = 1 if self.kind == "writers" else 2 * len(os.sched_getaffinity(0))
        for number in range(count):
            path = os.path.join(self.folder, f"written-{number}")
            self.processes.append(subprocess.Popen([sys.executable, "-c", BESIDE[self.kind], path]))

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def trial(binary, folder, needs, judge, at_once, runs):
    jobs = [(name, fraction) for name in PROGRAMS for fraction in FRACTIONS for _ in range(runs)]
    random.Random(at_once).shuffle(jobs)
    lines = [call(name, needs[name][judge] / fraction, judge, at) for at, (name, fraction) in enumerate(jobs)]
    seen, again = defaultdict(Counter), 0
    for record in batch(binary, folder, lines, at_once):
        name, fraction = jobs[record["id"]]
        wanted = "ok" if fraction < 1 else "timeout"
        counts = seen[name, fraction]
        counts["runs"] += 1
        counts["flips"] += record["verdict"] != wanted
        if record["verdict"] not in ("ok", "timeout"):
            raise SystemExit(f"`{name}` at {fraction:.0%} came to {record['verdict']}: {record['error']}")
        again += record.get("tried_alone") is not None
    return seen, again


def situation(at_once, beside):
    return ("alone" if at_once == 1 else f"{at_once} at a time") + (f", beside {beside}" if beside else "")


def share(counts):
    return f"{counts['flips']} of {counts['runs']}"


def report(found, alone, needs, took_s):
    def total(judge, at_once, beside, fraction):
        counts = Counter()
        for name in PROGRAMS:
            counts += found[judge, at_once, beside, name, fraction]
        return counts

    faults, runs = [], sum(counts["runs"] for key, counts in found.items() if key[0] == "cpu")
    for (judge, at_once, beside, name, fraction), counts in found.items():
        if judge == "cpu" and counts["flips"] and not 0.8 < fraction < 1.25:
            faults.append(f"{name} at {fraction:.0%}, {situation(at_once, beside)}: {share(counts)} flipped")
    for fraction in (0.9, 1.1):
        base = total("cpu", 1, None, fraction)
        for at_once, beside in SITUATIONS[1:]:
            counts = total("cpu", at_once, beside, fraction)
            if is_more(counts, base):
                where = situation(at_once, beside)
                faults.append(f"{fraction:.0%}, {where}: {share(counts)} flipped, alone {share(base)}")
    needed = ", ".join(f"{name} {1e3 * need['cpu']:.0f} ms" for name, need in needs.items())
    lines = [
        "## Steady",
        "",
        f"Written by `make steady`: {runs:,} runs judged by processor time (`time: cpu`), in {took_s / 60:.0f} minutes "
        f"on {len(os.sched_getaffinity(0))} processors, load average at the end {os.getloadavg()[0]:.1f}. Each cell is "
        "how many verdicts differ from what the need alone demands, of programs that use so much of their limit: "
        "`timeout` below 100 %, no `timeout` above. `Run again`: calls that were tried alone before they were judged.",
        "",
        f"Needs: {needed}.",
        "",
    ]
    for judge, title in (("cpu", "Judged by processor time"), ("wall", "The same programs judged by wall time")):
        lines += [
            f"**{title}**",
            "",
            "| | " + " | ".join(f"{fraction:.0%}" for fraction in FRACTIONS) + " | run again |",
            "|---|" + "---|" * (len(FRACTIONS) + 1),
        ]
        for at_once, beside in SITUATIONS:
            cells = [share(total(judge, at_once, beside, fraction)) for fraction in FRACTIONS]
            again = alone[judge, at_once, beside]
            lines.append(f"| {situation(at_once, beside)} | " + " | ".join(cells) + f" | {again} |")
        lines.append("")
    verdict = "held" if not faults else "**not held**: " + "; ".join(faults)
    lines += [
        f"No flip at 80 % and below or at 125 % and above, no more at 90 and 110 % than alone: {verdict}.",
        "",
    ]
    return "\n".join(lines), faults


def is_more(counts, base):
    """Whether it flips more often than alone: by Fisher's exact test, at 1 %."""
    flips, runs = counts["flips"], counts["runs"]
    all_flips, all_runs = flips + base["flips"], runs + base["runs"]
    ways = sum(
        math.comb(runs, count) * math.comb(base["runs"], all_flips - count)
        for count in range(flips, min(runs, all_flips) + 1)
    )
    return ways / math.comb(all_runs, all_flips) < 0.01


def write(text):
    whole = RESULTS.read_text()
    without = re.sub(r"\n## Steady\n.*?(?=\n## |\Z)", "\n", whole, flags=re.DOTALL)
    RESULTS.write_text(without.rstrip() + "\n\n" + text)


if __name__ == "__main__":
    sys.exit(main())
