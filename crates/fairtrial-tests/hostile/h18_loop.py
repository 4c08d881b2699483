# Works for ever: in Python, in C that keeps the interpreter's lock, in a regular expression, in arithmetic.
import itertools
import re


def python():
    while True:
        pass


def lock():
    return sum(itertools.repeat(0))


def expression():
    return re.match("(a|aa)+$", "a" * 200 + "b")


def integer():
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    return int("9" * 20_000_000)


def attack(places, what):
    return {"python": python, "lock": lock, "expression": expression, "integer": integer}[what]()
