"""Removes repeats from a list, as often as it is told. Takes 100 ms to start, as a program with large imports does."""

import os
import sys
import time

while time.process_time() < 0.1:
    pass

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from unique import unique  # noqa: E402

items = [number * 7 % 400 for number in range(660)]
for _ in range(int(sys.argv[1])):
    unique(items)
