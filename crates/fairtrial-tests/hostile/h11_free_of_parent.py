# Clears its parent-death signal, becomes a subreaper, and leaves children that did the same.
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def be_free():
    checked(libc.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0))
    checked(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def attack(places, what):
    be_free()
    told, tell = os.pipe()
    for _ in range(3):
        if os.fork() == 0:
            be_free()
            os.setsid()
            if os.fork() == 0:
                be_free()
                os.setsid()
                os.write(tell, b"x")
            linger()
    left = 3
    while left:
        left -= len(os.read(told, left))
    return "left six"
