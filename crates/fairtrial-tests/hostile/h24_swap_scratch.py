# Swaps what is in its scratch directory, and the directory itself, for links to other people's files.
def try_to(act, *args):
    try:
        act(*args)
    except OSError:
        pass  # a sandbox may refuse; what matters is what the engine does afterwards


def attack(places, what):
    outside, scratch = places["outside"], os.environ["TMPDIR"]
    keep = os.path.join(outside, "keep")
    for name in ("result", "stdout", "stderr", "link"):
        try_to(os.symlink, outside, name)
    try_to(os.symlink, "/dev/zero", "zero")
    try_to(os.symlink, "link", "loop")
    try_to(os.mkfifo, "fifo")
    try_to(os.mkdir, "directory")
    try_to(os.symlink, outside, "directory/link")
    try_to(os.link, keep, "hard")
    if what == "itself":
        try_to(os.rename, scratch, scratch + ".moved")
        try_to(os.symlink, outside, scratch)
    return "swapped"
