# Sends datagrams, asks for names, and waits for an answer.
import socket

QUESTION = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01"


def ask(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(1)
        line.connect((address, port))
        line.send(QUESTION)
        try:
            line.recv(512)
        except socket.timeout:
            return "no answer"


def attack(places, what):
    told = [attempt("UDP " + name, ask, address, places["udp_port"]) for name, address in places["addresses"].items()]
    return told + [attempt("DNS", ask, places["addresses"]["world"], 53)]
