# Answers for other calls: value, acknowledgement and request frames of every generation but its own, now or, from a
# thread that it leaves behind, during the calls that follow.
import os
import struct
import threading
import time

ACK, NEED, VALUE = 18, 20, 21
FORGED = b"I\x00\x00\x00\x00\x00\x00\x00\x00"


def socket_number():
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= 200 and os.readlink("/proc/self/fd/" + name).startswith("socket:"):
            return int(name)


def frame(kind, generation, payload=b""):
    return struct.pack("<2sBBIQ", b"FT", 1, kind, generation, len(payload)) + payload


def forge(socket, generations):
    for generation in generations:
        os.write(socket, frame(ACK, generation, bytes(16)) + frame(VALUE, generation, b"N"))
        os.write(socket, frame(NEED, generation, struct.pack("<Q", 1 << 20)))


def f(generations, later):
    socket = socket_number()
    forge(socket, generations)
    if later:

        def keep_forging():
            give_up = time.monotonic() + 5
            while time.monotonic() < give_up:
                forge(socket, generations)
                time.sleep(0.001)

        threading.Thread(target=keep_forging, daemon=True).start()
    return "mine"
