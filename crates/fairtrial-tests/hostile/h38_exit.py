# Ends the interpreter instead of answering.
import threading


def attack(places, what):
    if what == "thread":
        thread = threading.Thread(target=sys.exit, args=(7,))
        thread.start()
        thread.join()
        return "still here"
    ways = {
        "sys.exit(0)": lambda: sys.exit(0),
        "sys.exit(3)": lambda: sys.exit(3),
        "sys.exit(text)": lambda: sys.exit("\x1b[2J"),
        "SystemExit": lambda: (_ for _ in ()).throw(SystemExit),
        "KeyboardInterrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt),
        "os._exit(0)": lambda: os._exit(0),
    }
    ways[what]()
