# Brings up the cage's loopback, and gives it addresses that stand in for the world's.
#
#     raise_network.py ADDRESS...
import fcntl
import socket
import struct
import sys

SIOCSIFADDR, SIOCSIFFLAGS, UP_AND_RUNNING = 0x8916, 0x8914, 0x41

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
    fcntl.ioctl(line, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", UP_AND_RUNNING))
    for number, address in enumerate(sys.argv[1:]):
        name = b"lo:%d" % number
        fcntl.ioctl(line, SIOCSIFADDR, struct.pack("16sHH4s16x", name, socket.AF_INET, 0, socket.inet_aton(address)))
