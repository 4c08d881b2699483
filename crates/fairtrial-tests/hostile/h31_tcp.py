# Connects over TCP: to the world, to Redis on this machine, to the cloud's metadata service.
import socket


def connect(address, port):
    with socket.create_connection((address, port), timeout=5) as line:
        line.sendall(b"PING\r\n")
        if not line.recv(100):
            return "no answer"


def attack(places, what):
    return [attempt("TCP " + name, connect, address, places["tcp_port"]) for name, address in places["addresses"].items()]
