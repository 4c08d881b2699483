# Leaves a daemon: forked twice, in a session of its own, out of every directory.
def attack(places, what):
    told, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            os.chdir("/")
            os.write(tell, b"x")
            linger()
        os._exit(0)
    os.wait()
    os.read(told, 1)
    return "left one"
