"""Prints 100 MB."""

import os


def f():
    block = b"x" * 1_000_000
    for _ in range(100):
        left = block
        while left:
            left = left[os.write(1, left) :]
