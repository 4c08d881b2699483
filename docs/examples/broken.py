def area(shape):
    return shape["width"] * shape["height"]


def solve(n):
    return area({"width": n})
