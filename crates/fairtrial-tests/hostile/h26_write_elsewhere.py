# Writes where it has no business: a sibling's scratch, the engine's source, packages, the user's shell, cron.
def write(path):
    with open(path, "a") as file:
        file.write("# was here\n")


def create(directory):
    path = os.path.join(directory, "sin")
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.unlink(path)


def attack(places, what):
    told = [attempt("write " + path, write, path) for path in places["writable_files"]]
    told += [attempt("rename " + path, os.rename, path, path + ".sin") for path in places["writable_files"]]
    directories = places["writable_directories"] + [places["sibling_scratch"]]
    directories = [path for path in directories if path != os.environ["TMPDIR"]]  # at `strict` both have that name
    return told + [attempt("create in " + path, create, path) for path in directories]
