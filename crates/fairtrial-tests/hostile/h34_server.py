# Leaves a server that listens, forked twice, in a session of its own.
import socket


def attack(places, what):
    line = socket.socket()
    line.bind(("127.0.0.1", 0))
    line.listen()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            linger()
        os._exit(0)
    os.wait()
    return line.getsockname()[1]
