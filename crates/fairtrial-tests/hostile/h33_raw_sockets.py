# Opens sockets below or beside TCP and UDP.
import socket

KINDS = {
    "raw": (2, 3, 1),  # INET, RAW, ICMP
    "raw IPv6": (10, 3, 58),
    "packet": (17, 3, 0x0300),
    "packet datagram": (17, 2, 0x0300),
    "netlink route": (16, 3, 0),
    "netlink audit": (16, 3, 9),
    "netlink netfilter": (16, 3, 12),
    "vsock": (40, 1, 0),
}


def attack(places, what):
    def open_one(kind):
        socket.socket(*KINDS[kind]).close()

    return [attempt(kind, open_one, kind) for kind in KINDS]
