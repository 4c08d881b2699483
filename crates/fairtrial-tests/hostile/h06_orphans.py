# Makes 1,000 orphans in waves of 50 and waits for none.
def attack(places, what):
    for _ in range(20):
        if os.fork() == 0:
            for _ in range(49):
                if os.fork() == 0:
                    os._exit(0)
            os._exit(0)
    return "waited for none"
