# Prints ten gigabytes without a newline, with everything a terminal obeys.
PIECE = b"\x1b]0;owned\x07\x1b[2J\x1b[31m\x00\x9b" * 65536


def attack(places, what):
    stream = 2 if what == "stderr" else 1
    for _ in range(10**10 // len(PIECE)):
        left = PIECE
        while left:
            left = left[os.write(stream, left) :]
    return "printed"
