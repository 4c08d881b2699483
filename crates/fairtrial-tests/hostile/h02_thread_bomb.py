# Starts threads for ever.
import threading


def attack(places, what):
    threading.stack_size(65536)
    while True:
        try:
            threading.Thread(target=time.sleep, args=(TOO_LONG,), daemon=True).start()
        except RuntimeError:
            time.sleep(0.5)
