import time


def wait_for_rain():
    while True:
        time.sleep(0.01)


def solve(n):
    return wait_for_rain()
