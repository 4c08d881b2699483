"""A small evolutionary search over programs that nobody vouches for: some are wrong, some hang, some crash.

    python examples/evolve.py

Candidates are formulas that a mutation writes as source text. With `concurrent.futures.ProcessPoolExecutor` one crash
breaks the pool and one endless loop holds a worker for ever; here each costs itself only. `submit`, `as_completed` and
the futures are those of `concurrent.futures`; the timeout, the process for each call and `outcome()` are new.
"""

import collections
import math
import random

import fairtrial as ft

TARGET = [(x / 10, math.sin(x / 10)) for x in range(-30, 31)]
SEED, GENERATIONS, POPULATION = 7, 12, 24

# What mutations write besides arithmetic. A search over real programs meets all of these.
ACCIDENTS = ["1 / 0", "[0][1]", "hang()", "crash()", "leave()"]


def evaluate(formula):
    """The mean square error of a formula, run as it is."""
    source = "from math import *\nimport os\n"
    source += "def hang():\n    while True: pass\n"
    source += "def crash(): os.kill(os.getpid(), 11)\n"
    source += "def leave(): os._exit(3)\n"
    names = {}
    exec(source + "def f(x): return " + formula, names)
    return sum((names["f"](x) - y) ** 2 for x, y in TARGET) / len(TARGET)


def mutate(formula, dice):
    if dice.random() < 0.12:
        return dice.choice(ACCIDENTS)
    term = dice.choice(["x", "x * x", "x * x * x", "x * x * x * x * x"])
    return "%s + %.4f * %s" % (formula, dice.gauss(0, 0.3 / (1 + 10 * dice.random())), term)


def main():
    dice = random.Random(SEED)
    best, best_error = "0 * x", evaluate("0 * x")
    fates = collections.Counter()
    with ft.Executor(2, timeout=1, isolation="fresh", echo=False) as executor:
        for generation in range(1, GENERATIONS + 1):
            brood = [mutate(best, dice) for _ in range(POPULATION)]
            futures = {executor.submit(evaluate, formula): formula for formula in brood}
            for future in ft.as_completed(futures):
                fates[future.outcome().verdict] += 1
                if future.exception() is None and future.result() < best_error:
                    best, best_error = futures[future], future.result()
            print("generation %2d: error %.5f" % (generation, best_error))
    print("\nof %d candidates:" % sum(fates.values()))
    for verdict, count in fates.most_common():
        print("  %-10s %3d" % (verdict, count))


if __name__ == "__main__":
    main()
