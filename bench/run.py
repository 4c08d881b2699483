"""`make bench`: the engine's figures beside bare limits, measured in turns in one run on one machine.

    .venv/bin/python bench/run.py [--full] [--quick] [--rounds N] [--no-write]

Prints tables of medians and ratios with bootstrap intervals, and writes them to bench/RESULTS.md with the machine's
description: `fairtrial.Executor` beside the pools of other packages, then the engine by its Rust interface beside bare
limits, then whole studies beside DRE's, evaluations, and agents of a cluster beside Ray.
"""

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
from pathlib import Path

import cluster
import evaluations
import levels
import studies
import versus
from contender import Peer, interval, time, times

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "RESULTS.md"
MEBIBYTES = 512
BUSY = (
    "**Other work ran on this machine during the run**: absolute times are too high, and intervals are wide. Compare\n"
    "within a row only, and run it again on a quiet machine before relying on any figure."
)


def main():
    options = arguments()
    load = os.getloadavg()[0]
    build()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    pools = versus.measure(options)
    engine = Peer([str(target / "release" / "bench_engine"), sys.executable])
    bare = Peer([sys.executable, str(ROOT / "bench" / "baselines.py")])
    try:
        samples, deadline = measure(engine, bare, options)
        isolation = levels.measure(engine, options)
        flat = engine.ask("flat %d %d" % (options.calls, options.fresh_calls), patience_s=3600)
    finally:
        engine.end()
        bare.end()
    whole = studies.measure(options)
    rivals = evaluations.measure(options)
    agents = cluster.measure(options)
    text = (
        report(samples, deadline, flat, isolation, options, load, pools)
        + "\n".join(studies.report(whole) + evaluations.report(rivals) + cluster.report(agents))
        + "\n"
    )
    print(text)
    if not options.no_write:
        RESULTS.write_text(text)
        (ROOT / "bench" / "pools.svg").write_text(versus.draw(pools))


def arguments():
    parser = argparse.ArgumentParser(description="the engine's figures beside bare limits")
    parser.add_argument("--full", action="store_true", help="1,000,000 calls for EX-S7 instead of 100,000")
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it works")
    parser.add_argument("--rounds", type=int, help="turns that each contender takes [default: 15]")
    parser.add_argument("--no-write", action="store_true", help="leave bench/RESULTS.md alone")
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 15)
    options.calls = 1_000_000 if options.full else 20_000 if options.quick else 100_000
    options.fresh_calls = 200 if options.quick else 2_000
    return options


def build():
    for what in (["-p", "fairtrial-tests", "--bin", "bench_engine"], ["-p", "fairtrial-cli"]):
        subprocess.run(["cargo", "build", "--release", "--quiet", *what], cwd=str(ROOT), check=True)


# ---- measuring --------------------------------------------------------------------------------------------------

# Name of the samples, who is asked, and what; the order changes from round to round.
TURNS = [
    ("warm", "engine", "warm 100"),
    ("pingpong", "engine", "pingpong 100"),
    ("throughput", "engine", "throughput 10000"),
    ("fresh", "engine", "fresh 20"),
    ("fresh_bare", "engine", "fresh_bare 20"),
    ("fork", "bare", "fork 20"),
    ("import_numpy", "bare", "import_numpy 1"),
    ("python", "bare", "python 2"),
    ("cold", "engine", "cold 1"),
    ("deadline", "engine", "deadline 2"),
]
# Half a gibibyte at a time: fewer turns, the same interleaving.
LARGE_TURNS = [
    ("large_fresh", "engine", "large %d" % MEBIBYTES),
    ("large_reuse", "engine", "large %d reuse" % MEBIBYTES),
    ("memcpy", "bare", "memcpy %d" % MEBIBYTES),
    ("memfd", "bare", "memfd %d" % MEBIBYTES),
]


def measure(engine, bare, options):
    """{name: [seconds]}; and the deadline experiment's own record."""
    peers = {"engine": engine, "bare": bare}
    samples, deadline = {}, {"ended": [], "freed": [], "siblings_failed": 0, "siblings": 0}
    for round_number in range(options.rounds):
        turns = TURNS + (LARGE_TURNS if round_number % 2 == 0 else [])
        random.Random(round_number).shuffle(turns)
        for name, who, line in turns:
            if name == "throughput" and options.quick:
                line = "throughput 1000"
            answer = peers[who].ask(line)
            if name == "deadline":
                deadline["siblings"] += len(answer["ended"])
                deadline["siblings_failed"] += answer["siblings_failed"]
                deadline["ended"] += answer["ended"]
                deadline["freed"] += answer["freed"]
            elif name == "throughput":
                calls = int(line.split()[1])
                samples.setdefault(name, []).extend(seconds / calls for seconds in answer)
            elif name.startswith("large"):
                samples.setdefault(name, []).append(answer[0])
                samples.setdefault(name + "_read", []).append(answer[1])
            else:
                samples.setdefault(name, []).extend(answer)
        print("round %d of %d" % (round_number + 1, options.rounds), file=sys.stderr, flush=True)
    return samples, deadline


# ---- reporting --------------------------------------------------------------------------------------------------


def report(samples, deadline, flat, isolation, options, load, pools):
    s = samples
    lines = [
        "# Results of `make bench`",
        "",
        "Written by `bench/run.py`. Medians with 95 % bootstrap intervals; all contenders took turns in one run.",
        "",
        "## Machine",
        "",
    ]
    lines += ["- %s: %s" % pair for pair in machine(load)]
    if load > 0.5:
        lines += ["", BUSY]
    lines += versus.report(pools)
    lines += [
        "",
        "## The engine beside bare limits",
        "",
        "By its Rust interface, with calls of source text at level `none`.",
        "",
        "| id | measure | engine | beside it | bare limit | engine / bare |",
        "|---|---|---|---|---|---|",
    ]
    rows = [
        ("EX-S1", "warm `reuse` call", "warm", "socket ping-pong with a bare interpreter", "pingpong"),
        ("EX-S2", "no-op calls, 2 workers: time per call", "throughput", "socket ping-pong", "pingpong"),
        ("EX-S3", "`fresh` call, numpy preloaded", "fresh", "fork and reap of a warm interpreter with numpy", "fork"),
        ("EX-S3", "the same", "fresh", '`python -c "import numpy"`', "import_numpy"),
        ("", "`fresh` call, nothing preloaded", "fresh_bare", "`python -c pass`", "python"),
        ("EX-S4", "%d MiB array, `fresh`" % MEBIBYTES, "large_fresh_read", "made, in a memory file, mapped", "memfd"),
        ("EX-S4", "%d MiB array, `reuse`" % MEBIBYTES, "large_reuse_read", "made, in a memory file, mapped", "memfd"),
        ("EX-S4", "the same", "large_reuse_read", "made, and one memcpy", "memcpy"),
        ("EX-S5", "cold engine to first answer", "cold", "`python -c pass`", "python"),
    ]
    for identity, measure_name, ours, limit_name, theirs in rows:
        lines.append(
            "| %s | %s | %s | %s | %s | %s |"
            % (
                identity,
                measure_name,
                times(interval(s[ours])),
                limit_name,
                times(interval(s[theirs])),
                "%.3g (%.3g to %.3g)" % interval(s[ours], s[theirs]),
            )
        )
    per_call = statistics.median(s["throughput"])
    lines += [
        "",
        "EX-S2 as a rate: %d calls a second. EX-S3: a fresh call is %.0f times cheaper than `import numpy`."
        % (round(1 / per_call), statistics.median(s["import_numpy"]) / statistics.median(s["fresh"])),
        "EX-S4 includes making the array in the worker and reading a byte of every page in the engine; until the value",
        "is in the caller's hands, unread: `fresh` %s, `reuse` %s."
        % (times(interval(s["large_fresh"])), times(interval(s["large_reuse"]))),
        "",
        "## EX-S6: deadline to freed slot",
        "",
        "| measure | median | largest |",
        "|---|---|---|",
        "| deadline to the recorded end | %s | %s |"
        % (times(interval(deadline["ended"])), time(max(deadline["ended"]))),
        "| deadline to the next call's start in that slot | %s | %s |"
        % (times(interval(deadline["freed"])), time(max(deadline["freed"]))),
        "",
        "%d of %d siblings in flight failed. The second figure includes up to 5 ms in which the hung interpreter writes"
        % (deadline["siblings_failed"], deadline["siblings"]),
        "its stacks, and the start of the next worker.",
        *levels.report(isolation),
        "",
        "## EX-S7: memory and descriptors over %s calls" % format(options.calls, ","),
        "",
        "| calls | engine resident | engine descriptors | launcher resident | launcher descriptors |",
        "|---|---|---|---|---|",
    ]
    points = flat["points"] + [flat["after_fresh"]]
    for point in points:
        lines.append(
            "| %s | %s KiB | %d | %s KiB | %s |"
            % (
                format(point["calls"], ","),
                format(point["rss_kib"], ","),
                point["fds"],
                format(point["launcher_rss_kib"], ",") if point["launcher_rss_kib"] else "?",
                point["launcher_fds"],
            )
        )
    first, last = flat["points"][0], flat["points"][-1]
    lines += [
        "",
        "%s `reuse` calls in %.1f s, then %s `fresh` ones (last line). From call %s to call %s the engine changed by"
        " %d KiB."
        % (
            format(options.calls, ","),
            flat["seconds"],
            format(options.fresh_calls, ","),
            format(first["calls"], ","),
            format(last["calls"], ","),
            last["rss_kib"] - first["rss_kib"],
        ),
    ]
    if not options.full:
        lines.append("`bench/run.py --full` makes 1,000,000 calls, as EX-S7 asks.")
    return "\n".join(lines) + "\n"


def machine(load):
    """What a reader needs to judge the figures; no names of hosts, no paths."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    import numpy

    yield "processor", "%s, %d allowed" % (processor(), len(os.sched_getaffinity(0)))
    yield "memory", "%.0f GiB" % memory
    yield "kernel", "Linux %s, %s" % (platform.release().split("-")[0], platform.machine())
    yield "Python", "%s, numpy %s" % (platform.python_version(), numpy.__version__)
    yield "load average when the run began", "%.1f%s" % (load, " (not a quiet machine)" if load > 0.5 else "")


def processor():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


if __name__ == "__main__":
    main()
