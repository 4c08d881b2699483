"""Twelve candidates for one small problem, run through `fairtrial batch`, judged, and shown in a table.

    python3 examples/demo.py target/release/fairtrial

Needs nothing but the standard library. The candidates are the files of `examples/candidates`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CANDIDATES = Path(__file__).resolve().parent / "candidates"
# How many ways there are to place n queens on an n by n board so that none attacks another.
ANSWERS = {1: 1, 4: 2, 6: 4, 8: 92}
ORDER = [
    "bitmask",
    "brute_force",
    "half_checked",
    "memorised",
    "off_by_one",
    "quitter",
    "segfault",
    "hanging",
    "memory_hog",
    "chatterbox",
    "daemon_maker",
    "time_liar",
]
TERMS = {"timeout_s": 2, "limits": {"memory_bytes": 256 << 20}}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: python3 examples/demo.py PATH/TO/fairtrial")
    binary = os.path.abspath(sys.argv[1])
    if not os.access(binary, os.X_OK):
        sys.exit("demo: `%s` cannot be run (build it with `make build`)" % sys.argv[1])
    sys.stdout.reconfigure(errors="replace", line_buffering=True)
    print("Problem: in how many ways can n queens stand on an n by n board, none attacking another?")
    print(
        "%d candidates that nobody vouches for, each asked for n = %s: one process per call,"
        % (len(ORDER), ", ".join(map(str, ANSWERS)))
    )
    print("2 s of time, 256 MiB of memory, 64 MiB of output.\n")
    directory = tempfile.mkdtemp(prefix="fairtrial-demo-")
    mark = "demo-%d-%d" % (os.getpid(), time.time_ns())
    try:
        began = time.monotonic()
        outcomes = run(binary, directory, mark)
        took = time.monotonic() - began
        processes = left_running(mark)
        files = sum(len(names) + len(dirs) for _, dirs, names in os.walk(os.path.join(directory, "spill")))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    show_table(outcomes)
    show_end(outcomes, took, processes, files)
    return 0 if as_expected(outcomes) and processes == 0 and files == 0 else 1


# ---- running ----------------------------------------------------------------------------------------------------


def run(binary, directory, mark):
    """Runs every candidate on every board; shows each verdict as it comes. Returns {candidate: [outcome]}."""
    calls = [
        {"id": "%s/%d" % (name, n), "file": name + ".py", "function": "solve", "args": [n], **TERMS}
        for name in ORDER
        for n in ANSWERS
    ]
    # The mark is part of every worker's environment: whoever outlives the run can be found by it.
    environment = dict(os.environ, FAIRTRIAL_NODE_ID=mark, FAIRTRIAL_SPILL_DIR=os.path.join(directory, "spill"))
    batch = subprocess.Popen(
        [binary, "batch", "-", "-j", "2", "--no-progress"],
        cwd=str(CANDIDATES),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    outcomes = {name: [] for name in ORDER}
    with batch:
        batch.stdin.write("".join(json.dumps(call) + "\n" for call in calls).encode())
        batch.stdin.close()
        for line in batch.stdout:
            outcome = json.loads(line)
            name, n = outcome["id"].split("/")
            outcome["n"] = int(n)
            outcomes[name].append(outcome)
            show_live(name, outcome)
    if batch.returncode not in (0, 3):  # 3: some call failed, as some must
        sys.exit("demo: `fairtrial batch` ended with exit code %d" % batch.returncode)
    return outcomes


def left_running(mark):
    """Processes whose environment has the mark, zombies aside."""
    mark, found = mark.encode(), 0
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open("/proc/%s/environ" % entry, "rb") as environ:
                    found += mark in environ.read()
            except OSError:
                pass  # it is gone, or it is somebody else's
    return found


# ---- judging ----------------------------------------------------------------------------------------------------


def is_right(outcome):
    value = outcome["value"]
    return outcome["verdict"] == "ok" and type(value) is int and value == ANSWERS[outcome["n"]]


def first_fault(outcomes):
    """The first outcome that is not `ok`, else the first wrong answer, else None."""
    return next((o for o in outcomes if o["verdict"] != "ok"), None) or next(
        (o for o in outcomes if not is_right(o)), None
    )


def reason(outcomes):
    """One line a person understands. Decided by verdicts and metrics; the candidate's own words are quoted as such."""
    fault = first_fault(outcomes)
    last = outcomes[-1]
    if fault is None:
        daemons = sum(o["metrics"]["leaked_processes"] or 0 for o in outcomes)
        if daemons:
            return "right; left %d daemons behind, all killed" % daemons
        said = last["stdout"].strip()
        if said:
            return "right; claims `%s`, took %s" % (said, most([last], lambda m: m["wall_s"], seconds))
        return "right"
    verdict, error, n = fault["verdict"], fault["error"] or {}, fault["n"]
    if verdict == "ok":
        return "n = %d: answered %s, right is %d" % (n, json.dumps(fault["value"]), ANSWERS[n])
    if verdict == "exception":
        where = place(error["traceback"], last=True)
        return "n = %d: %s: %s%s" % (n, error["type"], error["message"], where and " at " + where)
    if verdict == "timeout":
        where = place(error["traceback"], last=False)
        took = most([fault], lambda m: m["wall_s"], seconds)
        return "n = %d: stopped after %s%s" % (n, took, where and ", hung at " + where)
    return "n = %d: %s" % (n, error.get("message", ""))


def place(traceback, last):
    """`file:line` of the last frame of a traceback, or of the first of a dump of stacks (innermost first)."""
    frames = [line for line in traceback.splitlines() if line.strip().startswith('File "')]
    if not frames:
        return ""
    file, line = frames[-1 if last else 0].split('"')[1::2][0], frames[-1 if last else 0].split("line ")[1]
    return "%s:%s" % (os.path.basename(file), "".join(c for c in line.split()[0] if c.isdigit()))


EXPECTED = {
    "bitmask": ("ok", 4),
    "brute_force": ("ok", 4),
    "half_checked": ("ok", 1),
    "memorised": ("ok", 3),
    "off_by_one": ("exception", 0),
    "quitter": ("no_result", 0),
    "segfault": ("signal", 0),
    "hanging": ("timeout", 2),
    "memory_hog": ("memory_limit", 0),
    "chatterbox": ("output_limit", 0),
    "daemon_maker": ("ok", 4),
    "time_liar": ("ok", 4),
}


def as_expected(outcomes):
    """Whether the demo shows what it is meant to show; a surprise is told, never hidden."""
    surprises = 0
    for name, (verdict, right) in EXPECTED.items():
        got = (overall(outcomes[name]), sum(map(is_right, outcomes[name])))
        if got != (verdict, right):
            surprises += 1
            print("surprise: %s was expected to be %s with %d right, not %s with %d" % ((name, verdict, right) + got))
    return surprises == 0


def overall(outcomes):
    fault = first_fault(outcomes)
    return fault["verdict"] if fault else "ok"


# ---- showing ----------------------------------------------------------------------------------------------------

COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text, colour):
    return "\033[%sm%s\033[0m" % (colour, text) if COLOUR else text


def tone(outcome):
    return "32" if is_right(outcome) else "33" if outcome["verdict"] == "ok" else "31"


def show_live(name, outcome):
    verdict = outcome["verdict"] or "no trial"
    answer = "answer %s" % json.dumps(outcome["value"]) if verdict == "ok" else ""
    mark = "right" if is_right(outcome) else "WRONG" if verdict == "ok" else ""
    wall = most([outcome], lambda m: m["wall_s"], seconds)
    line = "  %-13s n = %d  %s  %9s  %s %s" % (
        name,
        outcome["n"],
        paint("%-12s" % verdict, tone(outcome)),
        wall,
        answer,
        mark,
    )
    print(line.rstrip())


def show_table(outcomes):
    print()
    head = "%-13s %-13s %-8s %8s %8s %9s  %s" % (
        "candidate",
        "verdict",
        "correct?",
        "wall",
        "CPU",
        "peak mem",
        "why",
    )
    print(paint(head, "1"))
    print("-" * len(head) + "-" * 40)
    for name, each in outcomes.items():
        right = sum(map(is_right, each))
        fault = first_fault(each)
        print(
            "%-13s %s %-8s %8s %8s %9s  %s"
            % (
                name,
                paint("%-13s" % overall(each), tone(fault or each[-1])),
                "%s %d/%d" % ("yes" if right == len(each) else "no ", right, len(each)),
                most(each, lambda m: m["wall_s"], seconds),
                most(each, lambda m: m["user_s"] + m["system_s"], seconds),
                most(each, lambda m: m["peak_rss_bytes"], lambda size: "%.0f MiB" % (size / 2**20)),
                reason(each),
            )
        )


def seconds(time):
    return "%.2f s" % time if time >= 0.1 else "%.1f ms" % (time * 1000)


def most(outcomes, metric, form):
    """The largest of a metric over a candidate's calls; what was not measured is a dash, never 0."""
    values = []
    for outcome in outcomes:
        try:
            value = metric(outcome["metrics"])
        except TypeError:
            continue  # null: not measured
        if value is not None:
            values.append(value)
    return form(max(values)) if values else "-"


def show_end(outcomes, took, processes, files):
    calls = sum(map(len, outcomes.values()))
    print()
    print("Wall, CPU and memory: each candidate's largest, measured from outside; its own word counts for nothing.")
    print(
        "%d calls in %.1f s; %d process%s and %d file%s left behind."
        % (calls, took, processes, "" if processes == 1 else "es", files, "" if files == 1 else "s")
    )
    print()
    print("Try next:")
    print("  target/release/fairtrial exec examples/candidates/hanging.py --function solve --args '[8]' --timeout 1s")
    print("  target/release/fairtrial exec examples/candidates/bitmask.py --function solve --args '[10]' --json")
    print("  target/release/fairtrial doctor        and read docs/first-call.md")


if __name__ == "__main__":
    sys.exit(main())
