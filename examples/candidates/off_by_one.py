"""Raises: goes one row beyond the board."""


def solve(n):
    board = []

    def fits(row, column):
        return all(board[r] != column and abs(board[r] - column) != row - r for r in range(row))

    def place(row):
        ways = int(row == n and board[row] is not None)
        for column in range(n):
            if row < n and fits(row, column):
                board.append(column)
                ways += place(row + 1)
                board.pop()
        return ways

    return place(0)
