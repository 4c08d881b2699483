"""A cluster of one machine, for `make chaos` and `make bench`: a redis-server of its own and agents as processes.

The server listens on a socket or a port of the loopback, has a password and a directory of its own, and is append-only.
Whatever is started here ends with its `with` block, and what its agents leave comes to this process, which finds it.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PASSWORD = "of-this-run-only"
PATIENCE_S = 60
PR_SET_CHILD_SUBREAPER = 36


class Cluster:
    def __init__(self, binary, port=None, lease="30s"):
        if not shutil.which("redis-server"):
            sys.exit("no redis-server: install the package `redis-server`")
        become_heir()
        self.binary, self.port, self.lease = os.path.abspath(binary), port, lease
        self.directory = tempfile.mkdtemp(prefix="fairtrial-cluster-")
        self.socket = os.path.join(self.directory, "s")
        self.agents, self.started, self.server = {}, 0, None
        self.url_file = self.write("url", self.url())

    def __enter__(self):
        self.start_server()
        return self

    def __exit__(self, *_):
        for process in [*self.agents.values(), self.server]:
            if process:
                process.send_signal(signal.SIGKILL)
                process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- the server

    def url(self, **options):
        where = "redis://:%s@127.0.0.1:%d" % (PASSWORD, self.port) if self.port else "redis+unix://" + self.socket
        words = {} if self.port else {"pass": PASSWORD}
        words.update(options)
        return where + "".join("%s%s=%s" % ("&?"[n == 0], *word) for n, word in enumerate(words.items()))

    def start_server(self):
        words = ["redis-server", "--unixsocket", self.socket, "--requirepass", PASSWORD, "--dir", self.directory]
        words += ["--port", str(self.port or 0), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]
        with open(os.path.join(self.directory, "server.log"), "a") as log:
            self.server = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.until("the server answers", self.answers)

    def kill_server(self):
        self.server.kill()
        self.server.wait()

    def answers(self):
        if self.server.poll() is not None:
            sys.exit("redis-server ended by itself: " + self.read("server.log")[-500:])
        try:
            return self.ask("PING") == "PONG"
        except (OSError, ServerError):
            return False

    def ask(self, *words):
        """One command of our own."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            with connection.makefile("rwb") as stream:
                for command in (("AUTH", PASSWORD), words):
                    stream.write(b"*%d\r\n" % len(command))
                    for word in map(str, command):
                        stream.write(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()))
                stream.flush()
                answer(stream)
                return answer(stream)

    # -- those who take part

    def start_agent(self, slots=1):
        """Under a name of its own: that of one that was killed is its own for a while longer."""
        self.started += 1
        name = "agent-%d" % self.started
        words = ["agent", "--redis", "@" + self.url_file, "--slots", str(slots), "--name", name]
        words += ["--sandbox", "none", "--open-server-ok", "--lease", self.lease]
        words += ["--cache", os.path.join(self.directory, "cache")]
        with open(os.path.join(self.directory, name + ".log"), "w") as log:
            process = subprocess.Popen([self.binary, *words], stderr=log, stdin=subprocess.DEVNULL)
        self.agents[name] = process
        return name

    def start_agents(self, many, slots=1):
        names = [self.start_agent(slots) for _ in range(many)]
        self.until("agents serve", lambda: all("serves" in self.read(name + ".log") for name in names))
        return names

    def batch(self, calls, out, **options):
        """A coordinator; it ends when every call has its record."""
        url = self.write("url-" + os.path.basename(out), self.url(lease=self.lease, **options))
        words = ["batch", calls, "--backend", "@" + url, "--out", out, "--no-progress"]
        with open(out + ".log", "w") as log:
            return subprocess.Popen([self.binary, *words], stdin=subprocess.DEVNULL, stderr=log)

    def status(self):
        words = [self.binary, "status", "--cluster", "@" + self.url_file, "--json"]
        return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)

    def number(self, queue, what):
        """One of a queue's numbers; 0 before there is such a queue."""
        return next((each[what] for each in self.status()["queues"] if each["queue"] == queue), 0)

    # -- files and waits

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        return path

    def read(self, name):
        with open(os.path.join(self.directory, name)) as file:
            return file.read()

    def until(self, what, holds, patience_s=PATIENCE_S):
        end = time.monotonic() + patience_s
        while not holds():
            if time.monotonic() > end:
                sys.exit("not within %d s: %s" % (patience_s, what))
            time.sleep(0.01)


class ServerError(Exception):
    pass


def answer(stream):
    """What a server says, by RESP2."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ServerError("it went away")
    kind, rest = line[:1], line[1:-2].decode()
    if kind == b"-":
        raise ServerError(rest)
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == "-1" else stream.read(int(rest) + 2)[:-2].decode()
    if kind == b"*":
        return [answer(stream) for _ in range(int(rest))]
    return rest


def become_heir():
    """What a killed agent leaves becomes ours."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def below(pid):
    """The processes below one, by pid; those that have ended and are not reaped are left out."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/stat" % entry) as file:
                    state, parent = file.read().rpartition(") ")[2].split()[:2]
            except OSError:
                continue  # it has ended
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry))
    found, look = [], [pid]
    while look:
        more = children.get(look.pop(), [])
        found += more
        look += more
    return found
