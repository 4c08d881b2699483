# A grandchild keeps every descriptor: standard output, standard error, and the one the result goes through.
def attack(places, what):
    print("before", flush=True)
    if os.fork() == 0:
        if os.fork() == 0:
            linger()
        os._exit(0)
    os.wait()
    return "answered"
