"""Two searches for a short tour. An agent is called once per run, with the run as a dict, and gives its output."""

import math
import random


def cities(count):
    return [(random.random(), random.random()) for _ in range(count)]  # seeded by the run's own seed


def length(places, tour):
    return sum(math.dist(places[a], places[b]) for a, b in zip(tour, tour[1:] + tour[:1]))


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


def search(run, accept):
    factors = run["condition"]["factors"]
    places = cities(factors["size"])
    tour = begin(places, factors["start"])
    if run["agent_id"] == "annealed" and run["replicate"] == 2:
        raise RuntimeError("the furnace went out")
    best = length(places, tour)
    for step in range(400):
        i, j = sorted(random.sample(range(len(tour)), 2))
        other = tour[:i] + tour[i:j][::-1] + tour[j:]
        if accept(length(places, other) - best, step):
            tour, best = other, length(places, other)
    return {"output": {"tour": tour, "length": best}, "metrics": {"steps": 400}}


def local(run):
    return search(run, lambda worse, step: worse < 0)


def annealed(run):
    return search(run, lambda worse, step: worse < 0 or random.random() < math.exp(-20 * worse - step / 100))


def shorter(task):
    """The evaluator: a process of its own, after the agent's is gone."""
    return {"length": task["output"]["length"]}
