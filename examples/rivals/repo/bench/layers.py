"""Orders a few hundred tasks, as often as it is told."""

import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from orders import order  # noqa: E402

chance = random.Random(7)
tasks = [f"t{number:03}" for number in range(400)]
needs = {task: chance.sample(tasks[at + 1 :], min(len(tasks) - at - 1, 3)) for at, task in enumerate(tasks)}
chance.shuffle(tasks)
for _ in range(int(sys.argv[1])):
    order(tasks, needs)
