# Opens descriptors until there are no more.
def attack(places, what):
    kept = []
    while len(kept) < 1_000_000:
        kept.append(os.pipe())
    return len(kept)
