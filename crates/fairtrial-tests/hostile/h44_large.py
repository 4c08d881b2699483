# Answers with more than the engine's disk holds.
def attack(places, what):
    return os.urandom(1 << 20) * 64
