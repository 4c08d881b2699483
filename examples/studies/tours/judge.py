"""Who judges the searches. In a file of its own: a change here makes no run old."""

from cities import length, places


def judge(task):
    """Measures the tour itself: what an agent claims is no evidence."""
    cities, tour = places(task["run"]["problem"]), task["output"]["tour"]
    if sorted(tour) != list(range(len(cities))):
        raise ValueError(f"no tour: {len(set(tour))} of {len(cities)} cities")
    return {"length": length(cities, tour)}
