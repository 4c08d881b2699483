# Fills the disk: with bytes, with the promise of bytes, with names, with levels.
def big_file():
    with open("big", "wb", 0) as file:
        for _ in range(640):
            file.write(b"x" * (1 << 20))


def sparse():
    with open("sparse", "wb") as file:
        os.ftruncate(file.fileno(), 1 << 60)


def many_files():
    for number in range(1200):
        with open("file-%d" % number, "wb", 0) as file:
            file.write(b"x" * (1 << 20))


def names(count):
    for number in range(count):
        os.close(os.open("n%d" % number, os.O_CREAT | os.O_WRONLY, 0o600))


def directories():
    for number in range(60_000):
        os.mkdir("d%d" % number)


def levels():
    for _ in range(100_000):
        os.mkdir("d")
        os.chdir("d")


def attack(places, what):
    ways = {
        "big file": big_file,
        "sparse": sparse,
        "many files": many_files,
        "inodes": directories,
        "levels": levels,
        "entries": lambda: names(200_000),
    }
    ways[what]()
    return "filled"
