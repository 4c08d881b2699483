# Calls itself for ever, through C, with the interpreter's limit out of the way.
def deeper(n):
    return max([n], key=lambda n: deeper(n + 1))


def attack(places, what):
    sys.setrecursionlimit(2**31 - 1)
    return deeper(0)
