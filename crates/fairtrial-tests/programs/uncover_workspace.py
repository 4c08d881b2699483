"""Looks for what its workspace covers, and prints the name of each way that led there.

Its arguments: the workspace, a word that only covered files hold, places that are covered, and file handles of such."""
import ctypes
import glob
import os
import sys

AT, WORD, COVERED, HANDLES = sys.argv[1], sys.argv[2].encode(), sys.argv[3].split(":"), sys.argv[4].split(":")
libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUSER, NEWPID = 0x20000, 0x10000000, 0x20000000
BIND, REC, PRIVATE, MOVE, REMOUNT = 4096, 16384, 1 << 18, 8192, 32


def holds(path):
    """Whether the word is in a file that is covered, as seen from there."""
    for name in ("mine", "sub/mine", "secret", "cache/secret", "repo/mine", "."):
        try:
            with open(os.path.join(path, name), "rb") as file:
                if WORD in file.read(4096):
                    return True
        except OSError:
            pass
    return False


def look(way):
    """At all that should be covered."""
    for place in [AT, *COVERED]:
        if holds(place):
            print(way, "shows", place, flush=True)
        for name in ("planted", "mine", "secret"):
            try:
                if place != AT:
                    open(os.path.join(place, name), "a").close()
            except OSError:
                pass


def mount(source, target, kind, flags):
    return libc.mount(source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), None)


def uncover(way):
    for flags in (0, 1, 2, 8):
        for place in [AT, *COVERED, "/proc", os.path.dirname(AT)]:
            libc.umount2(place.encode(), flags)
            look(f"{way} unmount {flags}")
    hole = os.path.join(os.environ["TMPDIR"], "hole")
    os.makedirs(hole, exist_ok=True)
    for flags in (BIND, BIND | REC, MOVE):
        for place in (os.path.dirname(AT), AT, "/"):
            if mount(place, hole, None, flags) == 0:
                inside = hole + (AT[len(place.rstrip("/")):] if AT.startswith(place) else "")
                for found in (inside, hole):
                    if holds(found):
                        print(way, "bind", flags, "shows", place, flush=True)
                libc.umount2(hole.encode(), 2)
    mount("none", AT, None, REMOUNT | BIND)
    mount("none", "/", None, REC | PRIVATE)
    look(f"{way} remount")
    for name in ("exec", "overlay", "proc"):
        if mount(name, hole, name, 0) == 0:
            look(f"{way} {name}")
            for pid in os.listdir(hole):
                if pid.isdigit() and holds(f"{hole}/{pid}/root{AT}"):
                    print(way, "another proc shows", pid, flush=True)
            libc.umount2(hole.encode(), 2)


def processes(way):
    """Other processes' views of the file system."""
    for root in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd"):
        if holds(root + AT) or holds(root):
            print(way, root, flush=True)
    for fd in glob.glob("/proc/[0-9]*/fd/*"):
        if not fd.startswith(f"/proc/{os.getpid()}/") and os.path.isdir(fd):
            print(way, "opens", fd, flush=True)
    for kind in ("user", "mnt", "pid"):
        try:
            ours, theirs = os.stat(f"/proc/self/ns/{kind}"), os.open(f"/proc/1/ns/{kind}", os.O_RDONLY)
            if libc.setns(theirs, 0) == 0 and os.fstat(theirs).st_ino != ours.st_ino:
                print(way, "enters", kind, flush=True)
                look(f"{way} enters {kind}")
        except OSError:
            pass
    if libc.ptrace(0x4206, 1, 0, 0) == 0:  # PTRACE_SEIZE
        print(way, "traces the init", flush=True)


def handles(way):
    """Files by their handles, which need no path."""
    for place in ("/", os.path.dirname(AT), AT):
        try:
            mounted = os.open(place, os.O_RDONLY)
        except OSError:
            continue
        for handle in HANDLES:
            kind, _, data = handle.partition("-")
            raw = bytes.fromhex(data)
            blob = len(raw).to_bytes(4, sys.byteorder) + int(kind).to_bytes(4, sys.byteorder, signed=True) + raw
            for flags in (os.O_RDONLY, os.O_RDONLY | os.O_DIRECTORY, os.O_PATH):
                fd = libc.open_by_handle_at(mounted, blob, flags)
                if fd >= 0:
                    print(way, "opens a handle in", place, flush=True)
                    os.close(fd)
        os.close(mounted)


def all_ways(way):
    look(way)
    handles(way)
    processes(way)
    uncover(way)


def deeper(way, flags):
    """The same in namespaces of its own, where it may do much."""
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(flags) != 0:
        return
    print(way, "entered", file=sys.stderr, flush=True)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        try:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        except OSError:
            pass
    child = os.fork()
    if child == 0:
        try:
            all_ways(way)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


with open("/proc/self/status") as status:
    for line in status:
        name, _, value = line.partition(":")
        if name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") and int(value, 16):
            print("has", name, value.strip())
        if name == "NoNewPrivs" and value.strip() != "1":
            print("can gain privileges")
all_ways("by itself:")
try:
    os.kill(1, 9)
except OSError:
    pass
for number, flags in enumerate((NEWUSER | NEWNS, NEWUSER | NEWNS | NEWPID, NEWNS)):
    child = os.fork()
    if child == 0:
        try:
            deeper(f"nested {number}:", flags)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
print("tried")
