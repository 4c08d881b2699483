"""Crashes hard: reads through a null pointer."""

import ctypes


def solve(n):
    return ctypes.c_int.from_address(0).value
