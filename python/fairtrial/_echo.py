"""What workers write, passed on as it comes: to descriptors 1 and 2, or to a replaced `sys.stdout` or `sys.stderr`."""

from __future__ import annotations

import os
import sys
import threading
from codecs import getincrementaldecoder

from . import _engine


class Echo:
    """A tap for an executor's calls, and the thread that empties it, started with the first call."""

    def __init__(self) -> None:
        self._started: list[tuple[_engine.Tap, threading.Thread]] = []  # the first counts
        self._lock = threading.RLock()  # a signal handler may submit during the first submit

    @property
    def tap(self) -> _engine.Tap:
        """Where the output of a call is to go."""
        if not self._started:
            with self._lock:
                if not self._started:
                    tap = _engine.Tap()
                    thread = threading.Thread(target=_pass_on, args=(tap,), name="fairtrial-echo", daemon=True)
                    thread.start()
                    self._started.append((tap, thread))
        return self._started[0][0]

    def close(self, wait: bool) -> None:
        """No call will follow; with `wait`, returns when all is passed on."""
        for tap, thread in self._started:
            tap.close()
            if wait and thread is not threading.current_thread():
                thread.join()


def _pass_on(tap: _engine.Tap) -> None:
    # A piece may end within a character.
    decoders = {number: getincrementaldecoder("utf-8")("replace") for number in (1, 2)}
    while True:
        piece = tap.next()
        if piece is None:
            return
        descriptor, data = piece
        stream, original = (sys.stdout, sys.__stdout__) if descriptor == 1 else (sys.stderr, sys.__stderr__)
        try:
            if stream is None:
                pass  # closed from the start: its number may be another file's by now
            elif stream is original:
                while data:
                    data = data[os.write(descriptor, data) :]
            else:
                stream.write(decoders[descriptor].decode(data))
                getattr(stream, "flush", int)()
        except Exception:
            pass  # the host's own object: whatever it does, workers are not to wait for it
