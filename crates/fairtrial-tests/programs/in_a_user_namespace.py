# Runs a command in a user namespace of its own in which every id is mapped to itself:
# `in_a_user_namespace.py MOST ARGV...`. MOST is how many user namespaces may be made in there, or `-` for as many as the kernel allows.
import ctypes
import os
import sys

CLONE_NEWUSER = 0x10000000
ALL = "0 0 4294967295"

most, command = sys.argv[1], sys.argv[2:]
made, go = os.pipe(), os.pipe()
parent = os.getpid()
if os.fork() == 0:
    # Only a process outside has the privileges to map more than one id.
    os.close(made[1])
    os.read(made[0], 1)
    for file in ("uid_map", "gid_map"):
        with open("/proc/%d/%s" % (parent, file), "w") as map_file:
            map_file.write(ALL)
    os._exit(0)
if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER) != 0:
    sys.exit("cannot make a user namespace: errno %d" % ctypes.get_errno())
os.write(made[1], b"x")
_, status = os.wait()
if status != 0:
    sys.exit("cannot map all ids")
if most != "-":
    with open("/proc/sys/user/max_user_namespaces", "w") as limit:
        limit.write(most)
os.execvp(command[0], command)
