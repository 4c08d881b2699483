"""What the searches and their judge share: where the cities are, and how long a tour is."""

import math
import random


def places(problem):
    count = problem["payload"]["cities"]
    if problem["payload"]["shape"] == "ring":
        angles = [2 * math.pi * i / count for i in range(count)]
        return [(math.cos(angle), math.sin(angle)) for angle in angles]
    own = random.Random(count)  # the same cities for everybody
    return [(own.random(), own.random()) for _ in range(count)]


def length(cities, tour):
    return sum(math.dist(cities[a], cities[b]) for a, b in zip(tour, tour[1:] + tour[:1]))
