import os
import random
import sys

seen = globals().get("seen", 0) + 1  # a global of this source
random.seen = getattr(random, "seen", 0) + 1  # an attribute left on a module of the standard library
os.environ["LEFT"] = os.environ.get("LEFT", "") + "x"
sys.path.append("/left")


def solve():
    return {"global": seen, "module": random.seen, "environ": os.environ["LEFT"], "path": sys.path.count("/left")}
