"""Writes to the worker's own socket, in the shim's name, what the shim never would."""
import os
import socket
import stat
import struct
import sys
import time

VALUE, ERROR, NEED, FILED, ACK, CALL = 21, 22, 20, 23, 18, 3
NULL, ONE = b"N", b"i" + struct.pack("<q", 1)
TOO_LONG = 20  # seconds; by then the engine has ended us, or the test has failed


def wire():
    return next(fd for fd in range(200, 300) if is_socket(fd))


def is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


def generation():
    frame = sys._getframe()
    while "generation" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["generation"]


def framed(kind, payload=b"", magic=b"FT", version=1, of=None, length=None):
    of = generation() if of is None else of
    return struct.pack("<2sBBIQ", magic, version, kind, of, len(payload) if length is None else length) + payload


def say(data, then_wait=True):
    os.write(wire(), data)
    if then_wait:
        time.sleep(TOO_LONG)


def junk():
    say(b"not a frame at all, but long enough")


def a_reply_and_an_exit():
    say(framed(VALUE, ONE), then_wait=False)
    os._exit(9)


def a_reply_and_a_crash():
    say(framed(VALUE, ONE), then_wait=False)
    os.abort()


def wrong_magic():
    say(framed(VALUE, NULL, magic=b"TF"))


def wrong_version():
    say(framed(VALUE, NULL, version=9))


def unknown_kind():
    say(framed(99, NULL))


def huge_length():
    say(framed(VALUE, NULL, length=2**63))


def a_frame_out_of_place():
    say(framed(CALL))


def an_ack_without_a_time():
    say(framed(ACK))


def an_ack_with_more_than_a_time():
    say(framed(ACK, bytes(9)))


def half_a_frame_and_a_closed_socket():
    say(framed(VALUE, ONE, length=10), then_wait=False)
    socket.socket(fileno=os.dup(wire())).shutdown(socket.SHUT_RDWR)
    time.sleep(TOO_LONG)


def half_a_frame_and_an_end():
    say(framed(VALUE, ONE)[:-3], then_wait=False)
    os._exit(0)


def a_closed_socket():
    socket.socket(fileno=os.dup(wire())).shutdown(socket.SHUT_WR)
    time.sleep(TOO_LONG)


def closed_descriptors():
    os.closerange(3, 4096)
    time.sleep(TOO_LONG)


def trailing_bytes():
    say(framed(VALUE, NULL) + b"x")


def a_second_reply():
    say(framed(VALUE, NULL) + framed(VALUE, ONE))


def a_file_it_was_not_given():
    say(framed(FILED, struct.pack("<BQ", VALUE, 100)))


def a_small_file():
    say(framed(NEED, struct.pack("<Q", 10)))


def receive_file(size):
    say(framed(NEED, struct.pack("<Q", size)), then_wait=False)
    line = socket.socket(fileno=os.dup(wire()))
    line.settimeout(TOO_LONG)
    return socket.recv_fds(line, 16, 1)[1][0]


def a_file_shorter_than_it_says():
    os.ftruncate(receive_file(100_000), 10)
    say(framed(FILED, struct.pack("<BQ", VALUE, 100_000)))


def more_than_the_file_holds():
    receive_file(100_000)
    say(framed(FILED, struct.pack("<BQ", VALUE, 2**62)))


def a_second_file():
    receive_file(100_000)
    say(framed(NEED, struct.pack("<Q", 100_000)))


def an_unreadable_record():
    say(framed(ERROR, b"\xff\xff"))


def a_claimed_verdict():
    text = lambda word: b"s" + struct.pack("<Q", len(word)) + word
    say(framed(ERROR, b"d" + struct.pack("<Q", 1) + text(b"verdict") + text(b"timeout")))


def of_another_generation():
    say(framed(VALUE, NULL, of=generation() + 1), then_wait=False)
    say(framed(VALUE, NULL, of=generation() - 1), then_wait=False)
    return "the true reply"


def forged(payload):
    say(framed(VALUE, payload))


def stall_with_half_a_file(size, mark):
    descriptor = receive_file(size)
    os.pwrite(descriptor, b"x" * (size // 2), 0)
    with open(mark + ".part", "w") as file:
        file.write("%d %s" % (os.getpid(), os.readlink("/proc/self/fd/%d" % descriptor)))
    os.rename(mark + ".part", mark)
    time.sleep(TOO_LONG)
