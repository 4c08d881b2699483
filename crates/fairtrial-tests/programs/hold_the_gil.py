"""Stays in a loop of C that never lets another thread or a Python signal handler run."""

import itertools


def f():
    return sum(itertools.repeat(0, 10**11))
