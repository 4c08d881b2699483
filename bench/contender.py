"""Somebody who takes part in `make bench`, and what is made of the figures."""

import json
import random
import select
import statistics
import subprocess
import sys
from pathlib import Path

RESAMPLES = 2000


class Peer:
    """A contender: a line in, a line of JSON out."""

    def __init__(self, argv):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line, patience_s=120):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        # Answers come one at a time, so nothing can wait unseen in the reader's buffer.
        if not select.select([self.process.stdout], [], [], patience_s)[0]:
            self.process.kill()
            sys.exit("bench: no answer to `%s` within %d s" % (line, patience_s))
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("bench: `%s` ended without an answer to `%s`" % (Path(self.process.args[0]).name, line))
        return json.loads(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def interval(samples, others=None):
    """Median of `samples`, or its ratio to that of `others`, with a 95 % percentile bootstrap interval."""
    generator = random.Random(1)

    def resampled(values):
        return statistics.median(generator.choices(values, k=len(values)))

    middle = statistics.median(samples)
    if others is None:
        spread = sorted(resampled(samples) for _ in range(RESAMPLES))
    else:
        middle /= statistics.median(others)
        spread = sorted(resampled(samples) / resampled(others) for _ in range(RESAMPLES))
    return middle, spread[int(0.025 * RESAMPLES)], spread[int(0.975 * RESAMPLES) - 1]


def times(estimate):
    middle, low, high = estimate
    return "%s (%s to %s)" % (time(middle), time(low), time(high))


def time(seconds):
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if abs(seconds) * factor >= 1:
            return "%.3g %s" % (seconds * factor, unit)
    return "%.3g µs" % (seconds * 1e6)


def high_water(pid):
    """The most memory that a process has had, in KiB."""
    try:
        with open("/proc/%d/status" % pid) as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)
    except OSError:
        return 0  # it has just ended
