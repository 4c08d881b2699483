"""Three searches for a short tour, one of which hangs, crashes or lies now and then."""

import math
import os
import random
import time

from cities import length, places


def first_tour(cities, start):
    rest = list(range(len(cities)))
    random.shuffle(rest)
    if start == "random":
        return rest
    tour = [rest.pop()]
    while rest:
        nearest = min(rest, key=lambda city: math.dist(cities[city], cities[tour[-1]]))
        rest.remove(nearest)
        tour.append(nearest)
    return tour


def improve(run, is_better):
    factors, cities = run["condition"]["factors"], places(run["problem"])
    tour = first_tour(cities, factors["start"])
    now = length(cities, tour)
    for step in range(factors["steps"]):
        i, j = sorted(random.sample(range(len(tour) + 1), 2))
        other = tour[:i] + tour[i:j][::-1] + tour[j:]
        then = length(cities, other)
        if is_better(then - now, step / factors["steps"]):
            tour, now = other, then
    return {"output": {"tour": tour}, "metrics": {"claimed_length": now}}


def descent(run):
    return improve(run, lambda change, _: change < 0)


def annealing(run):
    return improve(run, lambda change, done: change < 0 or random.random() < math.exp(-30 * change * (0.1 + done)))


def hasty(run):
    chance = random.random()
    if chance < 0.15:
        time.sleep(60)
    if chance < 0.3 and run["attempt"] == 1:
        os.abort()
    result = descent(run)
    if chance > 0.85:
        result["output"]["tour"] = result["output"]["tour"][::2]  # half a tour is short
    return result
