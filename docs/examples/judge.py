"""The evaluator: a process of its own, after the agent's is gone. It measures the tour itself."""

from cities import cities, length


def shorter(task):
    places, tour = cities(task["run"]), task["output"]["tour"]
    if sorted(tour) != list(range(len(places))):
        raise ValueError("no tour")
    return {"length": length(places, tour)}
