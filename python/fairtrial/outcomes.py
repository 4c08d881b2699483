"""What happened to a call: verdict, value, error, output, metrics."""

from __future__ import annotations

import copy
import json
import pickle
import signal as _signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

from . import _engine, _values
from ._interrupts import is_interrupt
from ._shim import codec as _codec


@dataclass(frozen=True)
class Error:
    """What went wrong, as the worker or the engine says it.

    >>> import fairtrial as ft
    >>> ft.run(ft.Call(source="def f(): 1/0", function="f")).error.type
    'ZeroDivisionError'
    """

    type: str
    message: str
    traceback: str

    def __repr__(self) -> str:
        return f"<Error {self.type}>"


@dataclass(frozen=True)
class Exit:
    """How a process ended: by an exit code or by a signal; `killed_by` is `outside` if the engine did not send it.

    >>> import fairtrial as ft
    >>> ft.run(ft.Call(argv=["false"])).exit.code
    1
    """

    code: int | None
    signal: int | None
    killed_by: str | None = None

    def __str__(self) -> str:
        if self.signal is None:
            return f"EXIT({self.code})"
        try:
            return _signal.Signals(self.signal).name
        except ValueError:
            return f"SIGNAL({self.signal})"


@dataclass(frozen=True)
class Margin:
    """How near a call came to a limit: `used` is a part of it, of which 1 is all.

    >>> import fairtrial as ft
    >>> ft.run(ft.Call(argv=["sleep", "0.1"], timeout_s=60, sandbox="none")).metrics.margin.limit
    'timeout_s'
    """

    limit: str
    used: float


@dataclass(frozen=True)
class Metrics:
    """What a call cost, measured from outside it; what was not measured is None.

    >>> import fairtrial as ft
    >>> ft.run(ft.Call(argv=["true"])).metrics.wall_s < 5
    True
    """

    wall_s: float | None
    queue_s: float | None
    user_s: float | None
    system_s: float | None
    cpu_source: str | None
    peak_rss_bytes: int | None
    peak_source: str | None
    started_at_ns: int | None
    finished_at_ns: int | None
    worker_pid: int | None
    worker_id: str | None
    node_id: str | None
    base_rss_bytes: int | None
    leaked_processes: int | None
    measured_by: str | None
    wait_s: float | None
    wait_source: str | None
    margin: Margin | None

    def __repr__(self) -> str:
        return f"<Metrics wall_s={self.wall_s} peak_rss_bytes={self.peak_rss_bytes}>"


@dataclass(frozen=True)
class FirstRun:
    """The verdict and metrics of a first run beside other work, before the call was run again alone or without others.

    >>> import fairtrial as ft
    >>> outcome = ft.run(ft.Call(source="def f(): return 1", function="f", timeout_s=ft.CpuTime(60)))
    >>> outcome.tried_alone is None  # the first run's verdict was not in doubt
    True
    """

    verdict: str
    metrics: Metrics


class Outcome:
    """What happened to a call.

    >>> import fairtrial as ft
    >>> outcome = ft.run(ft.Call(source="def f(): print('hi'); return [1]", function="f"))
    >>> outcome.ok, outcome.value, outcome.stdout
    (True, [1], 'hi\\n')
    """

    __slots__ = ("__weakref__", "_body", "_closed", "_lock", "_raw", "_state", "_value")

    def __init__(self, raw: _engine.Outcome, *, closed: bool = False) -> None:
        """`closed`: a pickle that somebody else made, which is opened only by `unpickle`."""
        self._raw: _engine.Outcome | None = raw
        self._state: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._body: Any = []  # format and encoded value, once it is taken
        form = raw.value_form()
        self._closed = closed and form is not None and form[0] == "pickle"
        self._value: tuple[Any] | BaseException | None = None if form else (None,)

    @property
    def call_id(self) -> int | None:
        """The call's number in its backend, which `Event` and `Future` have too."""
        return self._state.get("call_id")

    def _get(self, name: str) -> Any:
        """A part of it, made into Python's own objects when it is first asked for."""
        try:
            return self._state[name]
        except KeyError:
            assert self._raw is not None, "without one all is in the state"
            value = self._state[name] = _PARTS[name](self._raw)
            return value

    @property
    def verdict(self) -> str:
        """One word: `ok`, `timeout`, `memory_limit`, …"""
        found: str = self._get("verdict")
        return found

    @property
    def ok(self) -> bool:
        """Whether the call gave a value."""
        return self.verdict == "ok"

    @property
    def value(self) -> Any:
        """The value, decoded when it is first asked for; None without one."""
        if self._closed:
            raise ValueError("the value is a stranger's pickle, which can run code here: call unpickle() to open it")
        return self.unpickle()

    def unpickle(self) -> Any:
        """The value, even if it is a pickle of somebody who is not trusted: unpickling can run any code."""
        with self._lock:
            if self._value is None:
                try:
                    self._value = (_values.decode(*self._take()),)
                except BaseException as error:
                    if not is_interrupt(error):  # then somebody may ask again
                        self._value = error
                    raise
            self._body = []
            if isinstance(self._value, BaseException):
                raise self._value
            self._closed = False
            return self._value[0]

    def _put_pickle(self, data: bytes) -> None:
        """The value as it was taken from the engine before."""
        self._body, self._value = ("pickle", _values.pickle_body(data)), None

    def _take(self) -> tuple[str, bytes | memoryview]:
        """Format and encoded value; the engine gives it once."""
        if self._raw is not None:
            _values.take(self._raw, self._body)
        format, body = self._body
        return format, body

    @property
    def error(self) -> Error | None:
        """What went wrong, if something did."""
        found: Error | None = self._get("error")
        return found

    @property
    def exit(self) -> Exit | None:
        """How the process ended; None for one that lives on."""
        found: Exit | None = self._get("exit")
        return found

    @property
    def stdout(self) -> str:
        """What the call wrote to descriptor 1, within `capture_bytes`."""
        found: str = self._get("stdout")[0]
        return found

    @property
    def stderr(self) -> str:
        """What the call wrote to descriptor 2, within `capture_bytes`."""
        found: str = self._get("stderr")[0]
        return found

    @property
    def dropped(self) -> dict[str, int]:
        """Bytes of each stream that were not kept."""
        return {"stdout": self._get("stdout")[1], "stderr": self._get("stderr")[1]}

    @property
    def metrics(self) -> Metrics:
        """What the call cost."""
        found: Metrics = self._get("metrics")
        return found

    @property
    def in_force(self) -> dict[str, Any]:
        """Which isolation really held."""
        found: dict[str, Any] = self._get("in_force")
        return found

    @property
    def tried_alone(self) -> FirstRun | None:
        """What the first run came to, if the call was then run again, alone or without others: the last run counts.

        >>> import fairtrial as ft
        >>> ft.run(ft.Call(argv=["true"])).tried_alone is None
        True
        """
        found: FirstRun | None = self._get("tried_alone")
        return found

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain data for `json.dumps`: what `fairtrial exec --json` prints, with `call_id` as `id`.

        A value that is plain data has its JSON form; any other, and a pickle that was not opened, is `{"$pickle": …}`.

        >>> import fairtrial as ft
        >>> outcome = ft.run(ft.Call(source="def f(): return (1, 2)", function="f"))
        >>> outcome.to_dict()["value"], outcome.to_dict()["exit"]
        ({'$tuple': [1, 2]}, None)
        """
        ended: dict[str, Any] | None = None
        if self.exit is not None:
            ended = asdict(self.exit)
            if ended["killed_by"] is None:
                del ended["killed_by"]
        return {
            "id": self.call_id,
            "verdict": self.verdict,
            "value": self._value_as_json(),
            "error": None if self.error is None else asdict(self.error),
            "exit": ended,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "dropped": self.dropped,
            "metrics": asdict(self.metrics),
            "in_force": copy.deepcopy(self.in_force),
            "tried_alone": None if self.tried_alone is None else asdict(self.tried_alone),
        }

    def _value_as_json(self) -> Any:
        with self._lock:
            if self._closed:
                format, body = self._take()
                return json.loads(_engine.value_json(format, bytes(body)))
            value = self.unpickle()
        if value is None:
            return None
        try:
            format, body = "data", b"".join(_codec.encode(value))
        except _codec.Unencodable:
            format, body = "pickle", _values.pickle_body(pickle.dumps(value, 5))
        return json.loads(_engine.value_json(format, body))

    @property
    def _exception(self) -> bytes | None:
        """The pickled exception of a pickled call."""
        found: bytes | None = self._get("exception")
        return found

    def __repr__(self) -> str:
        return f"<Outcome {self.verdict}>"

    def __reduce__(self) -> tuple[Any, ...]:
        for name in _PARTS:
            self._get(name)
        with self._lock:
            if not self._closed and self._value is None:
                self.unpickle()
            format, body = self._take() if self._closed else ("", b"")
            return _restore, (self._state, self._value, (format, bytes(body)))


def take_outcome(pending: _engine.Pending, *, closed: bool) -> Outcome:
    """The outcome of a call that was answered; it can be taken once."""
    outcome = Outcome(pending.take(), closed=closed)
    outcome._state["call_id"] = pending.call_id
    return outcome


def unstarted(error: BaseException) -> Outcome:
    """Of a call that never reached the engine."""
    nothing = Metrics(**dict.fromkeys(field.name for field in fields(Metrics)))
    state = {
        "verdict": "setup_failed",
        "error": Error(type(error).__name__, message(error), report(error)),
        "exception": None,
        "exit": None,
        "stdout": ("", 0),
        "stderr": ("", 0),
        "metrics": nothing,
        "in_force": {},
        "tried_alone": None,
    }
    return _restore(state, (None,), ("", b""))


def report(error: BaseException) -> str:
    """An exception's traceback, whatever its methods do."""
    return _guarded(lambda: "".join(traceback.format_exception(type(error), error, error.__traceback__)))


def message(error: BaseException) -> str:
    """An exception's text, whatever its methods do."""
    return _guarded(lambda: str(error))


def _guarded(text: Callable[[], str]) -> str:
    try:
        return text()
    except BaseException as error:
        if is_interrupt(error):
            raise
        return "<unprintable>"


def _restore(state: dict[str, Any], value: Any, body: tuple[str, bytes]) -> Outcome:
    outcome = Outcome.__new__(Outcome)
    outcome._raw = None
    outcome._state = state
    outcome._lock = threading.RLock()
    outcome._closed = value is None
    outcome._value = value
    outcome._body = body
    return outcome


def _error(raw: _engine.Outcome) -> Error | None:
    error = raw.error
    return None if error is None else Error(*error[:3])


def _exception(raw: _engine.Outcome) -> bytes | None:
    error = raw.error
    return None if error is None else error[3]


def _exit(raw: _engine.Outcome) -> Exit | None:
    return None if raw.exit is None else Exit(*raw.exit)


def _metrics(given: dict[str, Any]) -> Metrics:
    margin = given.pop("margin")
    return Metrics(margin=None if margin is None else Margin(**margin), **given)


def _first_run(raw: _engine.Outcome) -> FirstRun | None:
    first = raw.tried_alone()
    return None if first is None else FirstRun(first["verdict"], _metrics(first["metrics"]))


_PARTS: dict[str, Callable[[_engine.Outcome], Any]] = {
    "verdict": lambda raw: raw.verdict,
    "error": _error,
    "exception": _exception,
    "exit": _exit,
    "stdout": lambda raw: raw.output(1),
    "stderr": lambda raw: raw.output(2),
    "metrics": lambda raw: _metrics(raw.metrics()),
    "in_force": lambda raw: raw.in_force(),
    "tried_alone": _first_run,
}
