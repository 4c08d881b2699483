"""A small study, killed in the middle and gone on with: which search finds the shortest tour?

    python3 examples/study.py target/release/fairtrial [DIRECTORY]

Needs nothing but the standard library. The study is `examples/studies/tours`; its directory stays, with its tables and
its report.
"""

import csv
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

STUDY = Path(__file__).resolve().parent / "studies" / "tours" / "study.yaml"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python3 examples/study.py PATH/TO/fairtrial [DIRECTORY]")
    binary = os.path.abspath(sys.argv[1])
    directory = Path(sys.argv[2] if len(sys.argv) == 3 else "target/demo-study").resolve()
    sys.stdout.reconfigure(errors="replace", line_buffering=True)
    shutil.rmtree(directory, ignore_errors=True)
    print("\nA study: three searches, two problems, four conditions, three replicates: 72 runs.")
    print("One of the searches hangs, crashes and lies now and then. It is killed in the middle (kill -9).\n")
    killed(binary, directory)
    done = rows(directory, binary, "status", directory)
    print("after the kill:   " + "; ".join(line.strip() for line in done[1:4]))
    done = rows(directory, binary, "resume", directory, "-j", "2", "--no-progress")
    print("after the resume: " + "; ".join(done[:2]) + "\n")
    show(directory)
    report = directory / "report.html"
    rows(directory, binary, "report", directory)
    verified = rows(directory, binary, "verify", directory)[0]
    print("\nverify: %s" % verified)
    print("tables: %s/runs.csv and others" % directory)
    print("report: %s" % report)
    return 0 if verified == "all as it was left" and report.exists() else 1


def killed(binary, directory):
    """Begins the study and kills the engine once some runs are recorded."""
    study = subprocess.Popen(
        [binary, "run", str(STUDY), "--out", str(directory), "-j", "2", "--no-progress"],
        stdout=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while study.poll() is None and time.monotonic() < end:
        status = subprocess.run([binary, "status", str(directory)], capture_output=True, text=True).stdout
        if " success" in status and int(status.split(" success")[0].split()[-1]) >= 20:
            break
        time.sleep(0.02)
    study.send_signal(signal.SIGKILL)
    study.wait()


def rows(directory, binary, *words):
    """What a command says; 3 is the exit code of a study in which not all is well, as in this one."""
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit("study: `fairtrial %s` ended with exit code %d\n%s" % (words[0], done.returncode, done.stderr))
    return done.stdout.splitlines()


def show(directory):
    """Lengths by agent and condition, as anybody can make them from the tables."""
    conditions = {row["condition_id"]: row for row in table(directory / "conditions.csv")}
    cells = {}
    for run in table(directory / "runs.csv"):
        condition = conditions[run["condition_id"]]
        key = (run["problem_id"], condition["start"], int(condition["steps"]))
        cells.setdefault(key, {}).setdefault(run["agent_id"], []).append(run)
    agents = ["descent", "annealing", "hasty"]
    print("%-10s %-7s %5s  " % ("problem", "start", "steps") + "".join("%18s" % agent for agent in agents))
    for key in sorted(cells):
        print("%-10s %-7s %5d  " % key + "".join("%18s" % cell(cells[key].get(agent, [])) for agent in agents))
    print("(mean length of the tours that are tours; runs that are not well)")


def cell(runs):
    lengths = [float(run["primary_outcome"]) for run in runs if run["primary_outcome"]]
    mean = "%.2f" % statistics.mean(lengths) if lengths else "-"
    ill = len(runs) - len(lengths)
    return mean + (" (%d ill)" % ill if ill else "")


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    sys.exit(main())
