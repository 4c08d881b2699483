"""Two searches for a short tour. An agent is called once per run, with the run as a dict, and gives its output."""

import math
import random

from cities import cities, length

STEPS = 400


def local(run):
    return search(run, lambda worse, step: worse < 0)


def annealed(run):
    if run["replicate"] == 2:
        raise RuntimeError("the furnace went out")
    return search(run, lambda worse, step: worse < 0 or random.random() < math.exp(-20 * worse - step / 100))


def search(run, accept):
    places = cities(run)
    tour = begin(places, run["condition"]["factors"]["start"])
    best = length(places, tour)
    for step in range(STEPS):
        i, j = sorted(random.sample(range(len(tour)), 2))  # `random` is seeded with the run's own seed
        other = tour[:i] + tour[i:j][::-1] + tour[j:]
        if accept(length(places, other) - best, step):
            tour, best = other, length(places, other)
    return {"output": {"tour": tour}, "metrics": {"steps": STEPS}}


def begin(places, how):
    tour = list(range(len(places)))
    if how == "random":
        random.shuffle(tour)
        return tour
    done = [tour.pop(0)]
    while tour:
        done.append(min(tour, key=lambda city: math.dist(places[city], places[done[-1]])))
        tour.remove(done[-1])
    return done
