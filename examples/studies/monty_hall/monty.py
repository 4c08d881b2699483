"""One run is a hundred games; `random` is seeded with the run's seed before this is called."""

import random

DOORS = "ABC"
GAMES = 100


def play(run):
    switches = run["condition"]["factors"]["strategy"] == "switch"
    wins = sum(game(switches) for _ in range(GAMES))
    return {"output": {"wins": wins, "games": GAMES}, "metrics": {"primary_outcome": wins / GAMES}}


def game(switches):
    prize, pick = random.choice(DOORS), random.choice(DOORS)
    opened = random.choice([door for door in DOORS if door not in (prize, pick)])
    if switches:
        pick = next(door for door in DOORS if door not in (pick, opened))
    return pick == prize
