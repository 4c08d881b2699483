"""Leaves in its scratch directory what a naive removal stumbles over."""
import os


def f(outside):
    scratch = os.environ["TMPDIR"]
    os.symlink(outside, "link")
    os.symlink("/nowhere", "dangling")
    os.mkfifo("fifo")
    os.mkdir("closed")
    open("closed/file", "w").close()
    os.chmod("closed/file", 0)
    os.chmod("closed", 0)
    os.mkdir("open")
    os.symlink(outside, "open/link")
    for _ in range(300):  # longer than PATH_MAX in all
        os.mkdir("d" * 50)
        os.chdir("d" * 50)
    os.chdir(scratch)
    os.chmod(scratch, 0)
    return scratch
