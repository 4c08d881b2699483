"""Wrong: forgets one of the two diagonals."""

from itertools import permutations


def solve(n):
    rows = range(n)
    return sum(len({row + column[row] for row in rows}) == n for column in permutations(rows))
