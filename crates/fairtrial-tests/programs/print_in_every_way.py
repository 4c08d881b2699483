"""Writes to both streams by every way there is."""
import ctypes
import os
import subprocess
import sys
import threading

print("<module>")
print("<module>", file=sys.stderr)


def f():
    print("<print>")
    os.write(1, b"<write>")
    ctypes.CDLL(None).printf(b"<printf>")
    subprocess.run(["sh", "-c", "echo '<child>'; echo '<child>' >&2"], check=True)
    subprocess.run(["sh", "-c", "(echo '<grandchild>') & wait"], check=True)
    thread = threading.Thread(target=print, args=("<thread>",))
    thread.start()
    thread.join()
    sys.stderr.write("<error>")
