# Frames (see protocol.rs): whole ones in, whole ones out. Knows nothing of what they say.
import _socket
from os import _exit
from select import POLLIN as _POLLIN
from select import poll as _poll
from struct import Struct as _Struct
from struct import iter_unpack as _iter_unpack

VERSION = 1
CONFIGURE, CALL, FILE, AHEAD, INITIALIZE = 2, 3, 4, 5, 6
READY, ACK, RUN, NEED, VALUE, ERROR, FILED, SKIPPED, USAGE = 17, 18, 19, 20, 21, 22, 23, 24, 25

HEADER = _Struct("<2sBBIQ")
_pack_header = HEADER.pack
_unpack_header = HEADER.unpack_from
_RECEIVE_BYTES = 65536
_DESCRIPTOR_SPACE = _socket.CMSG_SPACE(4 * 16)
_CLOEXEC = _socket.MSG_CMSG_CLOEXEC
_PEEK = _socket.MSG_PEEK | _socket.MSG_DONTWAIT
_SOL_SOCKET, _SCM_RIGHTS = _socket.SOL_SOCKET, _socket.SCM_RIGHTS
_BROKEN = 70  # exit code of a worker that cannot vouch for itself any more


class Channel:
    """The worker's end of its private socket: whole frames in, whole frames out."""

    def __init__(self, socket):
        self.receive = socket.recvmsg
        self.receive_into = socket.recvmsg_into
        self.sendall = socket.sendall
        self.socket = socket
        self.held = b""  # a reply that travels with the next acknowledgement
        self.data = b""
        self.at = 0  # where the next frame begins in `data`
        self.descriptors = []
        self.calls = []  # that came before a file that was waited for
        self.wait = None  # before receiving

    def send(self, kind, generation, payload=b""):
        data = _pack_header(b"FT", VERSION, kind, generation, len(payload)) + payload
        if self.held:
            data, self.held = self.held + data, b""
        self.sendall(data)

    def hold(self, kind, generation, payload=b""):
        """As `send`, but later: at the latest with the next frame. A wake-up of the engine costs more than a call."""
        self.held += _pack_header(b"FT", VERSION, kind, generation, len(payload)) + payload

    def release(self):
        if self.held:
            held, self.held = self.held, b""
            self.sendall(held)

    def has_call(self):
        """Whether the next call is here already, whole."""
        if self.calls:
            return True
        rest = len(self.data) - self.at
        if rest < 16:
            return False
        _, _, kind, _, length = _unpack_header(self.data, self.at)
        return (kind == CALL or kind == AHEAD) and rest >= 16 + length

    def expect_many(self):
        """Sleeps in `poll` from now on: who sleeps in `recvmsg` is woken each time the engine reads a reply."""
        poll = _poll()
        poll.register(self.socket, _POLLIN)
        self.wait = poll.poll

    def is_waiting(self):
        """Whether something can be read."""
        try:
            return bool(self.socket.recv(1, _PEEK))
        except BlockingIOError:
            return False

    def next_call(self):
        if self.calls:
            return self.calls.pop(0)
        while True:
            kind, generation, payload = call = self.next_frame()
            if kind == CALL or kind == AHEAD or kind == INITIALIZE:
                return call

    def next_file(self, generation):
        while True:
            kind, of, payload = self.next_frame()
            if kind == FILE and of == generation:
                # The last one that came: nothing is received together with what follows a descriptor, and those before
                # it belong to calls that wait.
                return self.descriptors.pop()
            if kind == CALL or kind == AHEAD:
                self.calls.append((kind, of, payload))

    def take_descriptor(self):
        return self.descriptors.pop(0)

    def discard(self):
        """Waits for the end."""
        _, ancillary, _, _ = received = self.receive(_RECEIVE_BYTES, _DESCRIPTOR_SPACE, _CLOEXEC)
        if not received[0]:
            _exit(0)
        for descriptor in _descriptors_in(ancillary):
            close(descriptor)

    def next_frame(self):
        data, at = self.data, self.at
        while True:
            rest = len(data) - at
            if rest >= 16:
                magic, version, kind, generation, length = _unpack_header(data, at)
                if magic != b"FT" or version != VERSION:
                    _exit(_BROKEN)
                if rest < 16 + length:
                    whole = self.fill(data[at:], 16 + length)
                    self.data, self.at = b"", 0
                    return kind, generation, whole[16:]
                start = at + 16
                end = start + length
                if end < len(data):
                    self.data, self.at = data, end
                else:
                    self.data, self.at = b"", 0
                return kind, generation, data[start:end]
            if self.wait is not None:
                self.wait()
            more, ancillary, _, _ = self.receive(_RECEIVE_BYTES, _DESCRIPTOR_SPACE, _CLOEXEC)
            if not more:
                _exit(0)
            if ancillary:
                self.descriptors.extend(_descriptors_in(ancillary))
            data, at = data[at:] + more if rest else more, 0

    def fill(self, data, end):
        """The whole of a long frame, read in place."""
        whole = bytearray(end)
        at = len(data)
        whole[:at] = data
        view = memoryview(whole)
        while at < end:
            count, ancillary, _, _ = self.receive_into([view[at:]], _DESCRIPTOR_SPACE, _CLOEXEC)
            if not count:
                _exit(0)
            if ancillary:
                self.descriptors.extend(_descriptors_in(ancillary))
            at += count
        return view


def _framed(kind, generation, chunks):
    payload = b"".join(chunks)
    return _pack_header(b"FT", VERSION, kind, generation, len(payload)) + payload


def _descriptors_in(ancillary):
    descriptors = []
    for level, kind, data in ancillary:
        if level == _SOL_SOCKET and kind == _SCM_RIGHTS:
            descriptors.extend(n for (n,) in _iter_unpack("i", data[: len(data) // 4 * 4]))
    return descriptors
