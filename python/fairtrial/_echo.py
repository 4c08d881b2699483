"""What workers write, passed on as it comes: to descriptors 1 and 2, or to a replaced `sys.stdout` or `sys.stderr`."""

from __future__ import annotations

import os
import sys
import threading

from . import _engine


class Echo:
    """A tap for an executor's calls, and the thread that empties it, started with the first call."""

    def __init__(self) -> None:
        self._tap: _engine.Tap | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def tap(self) -> _engine.Tap:
        """Where the output of a call is to go."""
        if self._tap is None:
            with self._lock:
                if self._tap is None:
                    tap = _engine.Tap()
                    self._thread = threading.Thread(target=_pass_on, args=(tap,), name="fairtrial-echo", daemon=True)
                    self._thread.start()
                    self._tap = tap
        return self._tap

    def close(self, wait: bool) -> None:
        """No call will follow; with `wait`, returns when all is passed on."""
        if self._tap is not None and self._thread is not None:
            self._tap.close()
            if wait and self._thread is not threading.current_thread():
                self._thread.join()


def _pass_on(tap: _engine.Tap) -> None:
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
                stream.write(data.decode(errors="replace"))
                getattr(stream, "flush", int)()
        except Exception:
            pass  # the host's own object: whatever it does, workers are not to wait for it
