"""The pools of other packages beside `fairtrial.Executor`: measured in turns, reported as ratios, drawn."""

import importlib.util
import random
import statistics
import sys
from pathlib import Path

from contender import Peer, interval, time, times

HERE = Path(__file__).resolve().parent
MEBIBYTES = 512

# Name on the command line of pools.py, name in the tables, package.
POOLS = [
    ("fairtrial", "fairtrial", "fairtrial"),
    ("ppe-fork", "ProcessPoolExecutor, fork", None),
    ("ppe-spawn", "ProcessPoolExecutor, spawn", None),
    ("loky", "loky", "loky"),
    ("pebble", "pebble", "pebble"),
    ("mp-pool", "multiprocessing.Pool", None),
    ("ray", "Ray", "ray"),
]
# Id, what is measured, name of the samples, how the target reads, peers it speaks of (None: all), least ratio.
NAMED = ("ppe-fork", "ppe-spawn", "loky", "pebble", "mp-pool")
TARGETS = [
    ("EX-S1", "warm call, one after the other", "warm", "2 times below the fastest of the named", NAMED, 2),
    ("EX-S1", "the same", "warm", "3.5 times below loky", ("loky",), 3.5),
    ("EX-S2", "no-op calls, time per call", "throughput", "2 times below the fastest of the named", NAMED, 2),
    ("EX-S4", "%d MiB of float64, summed" % MEBIBYTES, "large", "5 times below loky", ("loky",), 5),
    ("EX-S4", "the same", "large", "below Ray", ("ray",), 1),
    ("EX-S5", "first answer of a new pool", "cold", "3 times below loky", ("loky",), 3),
]


def measure(options):
    """{pool: {name: [seconds]}}; a package that is not installed is left out, and said so."""
    samples = {}
    there = []
    for name, title, package in POOLS:
        if package and importlib.util.find_spec(package) is None:
            print("bench: %s is not installed: left out" % title, file=sys.stderr)
        else:
            there.append(name)
    # Ray keeps processes of its own busy, so it has its turns when the others have had theirs.
    for group in ([name for name in there if name != "ray"], [name for name in there if name == "ray"]):
        peers = {name: Peer([sys.executable, str(HERE / "pools.py"), name]) for name in group}
        try:
            take_turns(peers, samples, options)
        finally:
            for peer in peers.values():
                peer.end()
    return samples


def take_turns(peers, samples, options):
    calls = 1000 if options.quick else 10_000
    for round_number in range(options.rounds):
        turns = [
            ("warm", "warm 1000", 1),
            ("throughput", "throughput %d" % calls, calls),
            ("map", "map %d" % calls, calls),
        ]
        if round_number % 3 == 0:
            turns += [("large", "large %d" % MEBIBYTES, 1), ("cold", "cold", 1)]
        if round_number == 0:
            turns += [("pending", "pending %d" % calls, 1)]
        for name, line, share in turns:
            order = list(peers)
            random.Random(round_number).shuffle(order)
            for pool in order:
                answer = peers[pool].ask(line)
                samples.setdefault(pool, {}).setdefault(name, []).extend(value / share for value in answer)
        print("pools: round %d of %d" % (round_number + 1, options.rounds), file=sys.stderr, flush=True)


def report(samples):
    """The tables, as lines of Markdown."""
    ours = samples["fairtrial"]
    lines = [
        "",
        "## Beside other pools",
        "",
        "Two workers each, through their Python interfaces; `bench/pools.py` is each contender's whole program.",
        "",
        "| id | measure | fairtrial | beside | target | theirs / ours | held |",
        "|---|---|---|---|---|---|---|",
    ]
    for identity, measured, name, target, peers, least in TARGETS:
        rivals = [(statistics.median(samples[peer][name]), peer) for peer in peers if peer in samples]
        if not rivals:
            lines.append("| %s | %s | | not installed | %s | | |" % (identity, measured, target))
            continue
        _, best = min(rivals)
        ratio, low, high = interval(samples[best][name], ours[name])
        cells = (
            identity,
            measured,
            times(interval(ours[name])),
            "%s, %s" % (title(best), time(statistics.median(samples[best][name]))),
            target,
            "%.2f (%.2f to %.2f)" % (ratio, low, high),
            "yes" if low >= least else "about" if high >= least else "**no**",
        )
        lines.append("| %s | %s | %s | %s | %s | %s | %s |" % cells)
    lines += every_pool(samples)
    per_map, per_submit = (statistics.median(ours[name]) for name in ("map", "throughput"))
    lines += [
        "",
        "`map` takes %.2f of the time per item that `submit` takes per call; a call that waits takes %.0f bytes of the"
        % (per_map / per_submit, statistics.median(ours["pending"])),
        "host's memory.",
        "",
        "![Times of each pool](pools.svg)",
    ]
    return lines


def every_pool(samples):
    columns = [("warm", "warm call"), ("throughput", "per call, many at once"), ("large", "%d MiB" % MEBIBYTES)]
    columns += [("cold", "first answer"), ("map", "per item of a `map`"), ("pending", "bytes per waiting call")]
    yield ""
    yield "| pool | %s |" % " | ".join(title for _, title in columns)
    yield "|---|%s" % ("---|" * len(columns))
    for pool in samples:
        values = []
        for name, _ in columns:
            middle = statistics.median(samples[pool][name])
            values.append("%.0f" % middle if name == "pending" else time(middle))
        yield "| %s | %s |" % (title(pool), " | ".join(values))


def title(pool):
    return next(title for name, title, _ in POOLS if name == pool)


def draw(samples):
    """Bars on a logarithmic scale: four panels, one bar for each pool."""
    import math

    panels = [("warm", "warm call"), ("throughput", "time per call, many at once"), ("large", "512 MiB result")]
    panels += [("cold", "first answer of a new pool")]
    pools = list(samples)
    width, row, head = 760, 18, 34
    height = len(panels) * (head + row * len(pools)) + 10
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">'
        % (width, height),
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    top = 0
    for name, panel in panels:
        middles = {pool: statistics.median(samples[pool][name]) for pool in pools}
        low, high = min(middles.values()) / 2, max(middles.values())
        parts.append('<text x="10" y="%d" font-weight="bold">%s</text>' % (top + 22, panel))
        for number, pool in enumerate(pools):
            y = top + head + number * row
            length = 430 * math.log(middles[pool] / low) / math.log(high / low)
            colour = "#2563eb" if pool == "fairtrial" else "#9ca3af"
            parts.append('<text x="200" y="%d" text-anchor="end">%s</text>' % (y + 11, title(pool)))
            parts.append('<rect x="208" y="%d" width="%.0f" height="13" fill="%s"/>' % (y, length, colour))
            parts.append('<text x="%.0f" y="%d">%s</text>' % (214 + length, y + 11, time(middles[pool])))
        top += head + row * len(pools)
    return "\n".join([*parts, "</svg>", ""])
