"""Right and fast: three bit masks say which columns and diagonals are taken."""


def solve(n):
    everywhere = (1 << n) - 1

    def place(columns, left, right):
        if columns == everywhere:
            return 1
        free = everywhere & ~(columns | left | right)
        ways = 0
        while free:
            queen = free & -free
            free ^= queen
            ways += place(columns | queen, (left | queen) << 1, (right | queen) >> 1)
        return ways

    return place(0, 0, 0)
