def solve(n):
    print("thinking about", n)
    return [i * i for i in range(n)]
