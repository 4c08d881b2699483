# Reads what is not meant for it: keys, credentials, the study's journal, rivals' code, hidden tests.
def read(path):
    with open(path, "rb") as file:
        file.read()


def attack(places, what):
    return [attempt("read " + path, read, path) for path in places["secret_files"]]
