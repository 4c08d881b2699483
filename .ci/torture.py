"""Kills a study at random points, resuming each time, and checks that nothing is lost or run twice (ST-61).

    python3 .ci/torture.py BINARY [KILLS] [SEED]

The study has 500 runs; when it is done it is begun anew until there were enough kills. Each time: the directory opens,
no recorded run is lost or executed again, at most as many others are executed again as there were workers times kills,
and the masked tables equal those of an undisturbed run.
"""

import filecmp
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

WORKERS = 2
AHEAD = 4  # calls per worker that wait in the engine while runs are short: recorded as started, and not begun
STUDY = """\
study_id: torture
title: Torture
factors: {k: [1, 2, 3, 4, 5]}
agents: {a: {python: 'agent.py:go', sandbox: none, pass_env: [EXECUTED]}}
evaluator: agent.py:score
run_budget: {replicates: 100}
"""
AGENT = """\
import os, random
def go(run):
    with open(os.environ["EXECUTED"], "a") as executed:
        executed.write(run["run_id"] + "\\n")
    return {"output": {"x": random.random()}}
def score(task): return task["output"]["x"]
"""


def main():
    binary = os.path.abspath(sys.argv[1])
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else time.time_ns() % 2**32
    print("torture: %d kills, seed %d" % (kills, seed), flush=True)
    chance = random.Random(seed)
    directory = tempfile.mkdtemp(prefix="fairtrial-torture-")
    try:
        os.chdir(directory)
        with open("study.yaml", "w") as file:
            file.write(STUDY)
        with open("agent.py", "w") as file:
            file.write(AGENT)
        began = time.monotonic()
        os.environ["EXECUTED"] = os.path.abspath("calm-executed")
        run(binary, "run", "study.yaml", "--out", "calm")
        whole = time.monotonic() - began
        run(binary, "export", "calm", "--to", "calm-masked", "--mask-volatile")
        done = rounds = 0
        while done < kills:
            rounds += 1
            done += disturbed(binary, "out-%d" % rounds, min(kills - done, 40), whole, chance)
            print("%d kills, %d studies whole" % (done, rounds), flush=True)
    finally:
        os.chdir("/")
        shutil.rmtree(directory, ignore_errors=True)
    print("torture: nothing lost, nothing run twice")


def disturbed(binary, out, kills, whole, chance):
    """One study under so many kills at most; tells how many there were."""
    recorded = done = 0
    os.environ["EXECUTED"] = os.path.abspath(out + "-executed")
    while done < kills:
        process = subprocess.Popen(
            [binary, "run", "study.yaml", "--out", out, "--resume", "-j", str(WORKERS), "--no-progress"],
            stdout=subprocess.DEVNULL,
        )
        time.sleep(chance.random() * whole / 8)
        process.send_signal(signal.SIGKILL)
        code = process.wait()
        if code == 0:
            break  # it was done before
        done += 1
        now = finishes(out)
        check(now >= recorded, "%d finished runs became %d" % (recorded, now))
        recorded = now
    run(binary, "run", "study.yaml", "--out", out, "--resume", "-j", str(WORKERS))
    with sqlite3.connect("%s/journal.sqlite" % out) as journal:
        twice = journal.execute("SELECT run_id FROM finishes GROUP BY run_id HAVING count(*) > 1").fetchall()
        check(not twice, "run twice: %s" % twice)
        lost = "SELECT count(*) FROM starts LEFT JOIN finishes USING (id) WHERE finishes.id IS NULL"
        lost = journal.execute(lost).fetchone()[0]
        check(lost <= WORKERS * (1 + AHEAD) * done, "%d attempts lost at %d kills" % (lost, done))
    with open(os.environ["EXECUTED"]) as executed:
        executed = executed.read().split()
    again = len(executed) - len(set(executed))
    check(len(set(executed)) == 500, "%d of 500 runs were executed" % len(set(executed)))
    check(again <= WORKERS * done, "%d runs executed again at %d kills" % (again, done))
    run(binary, "verify", out)
    run(binary, "export", out, "--to", out + "-masked", "--mask-volatile")
    names = sorted(os.listdir("calm-masked"))
    same = filecmp.cmpfiles("calm-masked", out + "-masked", names, shallow=False)[0]
    check(sorted(same) == names, "tables differ: %s" % sorted(set(names) - set(same)))
    return max(done, 1)


def finishes(out):
    if not os.path.exists("%s/journal.sqlite" % out):
        return 0
    with sqlite3.connect("%s/journal.sqlite" % out) as journal:
        if not journal.execute("SELECT 1 FROM sqlite_master WHERE name = 'finishes'").fetchone():
            return 0
        return journal.execute("SELECT count(*) FROM finishes").fetchone()[0]


def run(binary, *words):
    done = subprocess.run([binary, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == 0, "%s: exit code %d\n%s" % (" ".join(words), done.returncode, done.stdout))


def check(holds, what):
    if not holds:
        sys.exit("torture: " + what)


if __name__ == "__main__":
    main()
