# Waits for what never comes.
import select
import signal
import threading


def deadlock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def attack(places, what):
    ways = {
        "sleep": lambda: time.sleep(TOO_LONG),
        "deadlock": deadlock,
        "select": lambda: select.select([], [], []),
        "pause": signal.pause,
    }
    ways[what]()
