# Writes to both streams, and into its error, what a terminal would obey.
def attack():
    print("\x1b]0;owned\x07\x1b[2J\x1b[?1049h")
    print("\x1b[31m\x9b5m\x0e", file=sys.stderr)
    raise ValueError("\x1b[2J\x07")
