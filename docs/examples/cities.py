"""What the searches and their judge share: the cities of a run, and how long a tour is."""

import math
import random


def cities(run):
    """The same for all agents: a run's own seed is not."""
    own = random.Random(f"{run['condition']['condition_id']}:{run['replicate']}")
    side = run["problem"]["payload"]["side"]
    return [(side * own.random(), side * own.random()) for _ in range(run["condition"]["factors"]["size"])]


def length(places, tour):
    return sum(math.dist(places[a], places[b]) for a, b in zip(tour, tour[1:] + tour[:1]))
