"""Keeps every board it ever saw, 16 MiB each."""


def solve(n):
    boards = []
    while True:
        boards.append(bytearray(b"q") * (16 << 20))
