# Becomes the engine's host with secrets in every place that a host has: environment, a descriptor, a keyring.
# The one in argv is among the words.
#
#     plant_canaries.py CANARIES.json PROGRAM WORD...
import ctypes
import json
import os
import platform
import sys

libc = ctypes.CDLL(None, use_errno=True)
ADD_KEY, KEYCTL = (217, 219) if platform.machine() == "aarch64" else (248, 250)
JOIN_SESSION, SESSION_RING = 1, -3

with open(sys.argv[1]) as file:
    canaries = json.load(file)
secret = canaries["key"].encode()
libc.syscall(KEYCTL, JOIN_SESSION, None)
if libc.syscall(ADD_KEY, b"user", b"hostile", secret, len(secret), ctypes.c_int(SESSION_RING)) == -1:
    sys.stderr.write("no keyring to put a canary in: %s\n" % os.strerror(ctypes.get_errno()))
held = os.memfd_create("held", 0)
os.write(held, canaries["descriptor"].encode())
os.lseek(held, 0, os.SEEK_SET)
os.set_inheritable(held, True)
os.environ["OPENAI_API_KEY"] = os.environ["XQ7_ZKPWMV"] = canaries["environment"]
os.execv(sys.argv[2], sys.argv[2:])
