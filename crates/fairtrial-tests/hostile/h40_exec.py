# Becomes another program: one that ends well without an answer, or itself again and again.
AGAIN = "import os, sys; os.execv(sys.executable, [sys.executable, '-S', '-c', sys.argv[1], sys.argv[1]])"


def attack(places, what):
    if what == "true":
        os.execvp("true", ["true"])
    os.execv(sys.executable, [sys.executable, "-S", "-c", AGAIN, AGAIN])
