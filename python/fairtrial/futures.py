"""Futures whose running calls can be cancelled and whose outcomes can be had."""

from __future__ import annotations

import concurrent.futures
import pickle
import threading
from collections.abc import Callable
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, LOGGER, PENDING, RUNNING
from concurrent.futures.process import BrokenProcessPool, _RemoteTraceback
from typing import Any, Generic, TypeVar

from . import _engine
from ._delivery import delivery
from ._interrupts import is_interrupt, keep
from .errors import Cancelled, CandidateError, ResultError, error_of
from .outcomes import Outcome, message, report

T = TypeVar("T")

_RLock = threading.RLock
_loads = pickle.loads


class Shared:
    """What the futures of one executor share."""

    def __init__(self, *, trusted: bool = False) -> None:
        self.trusted = trusted  # the calls are the host's own functions: it unpickles what they give
        self.error: BrokenProcessPool | None = None  # its initializer failed: the one thing that breaks it
        self.report: Callable[[Outcome], None] | None = None
        self.lock = _RLock()
        self.called_back = threading.Condition(self.lock)
        self.callbacks = 0  # futures whose callbacks are under way


class Future(concurrent.futures.Future[T], Generic[T]):
    """A `concurrent.futures.Future` of a submitted call.

    >>> import fairtrial as ft
    >>> with ft.Executor(1) as executor:
    ...     future = executor.submit(pow, 2, 10)
    ...     future.result(), future.outcome().verdict
    (1024, 'ok')
    """

    # The call's state is the engine's; the base class's is brought up to it ("settled") when somebody looks at it
    # or, once somebody watches, when the call ends. So a future that is only waited for costs nobody a wake-up.

    __slots__ = ("_answer", "_kept", "_shared", "_lock", "_pending", "_settled", "_taken")

    def __init__(self, pending: _engine.Pending, shared: Shared) -> None:
        self._pending = pending
        self._shared = shared
        self._settled: str | None = None
        self._answer: tuple[Any, BaseException | None] | None = None
        self._taken: Outcome | _engine.EngineError | None = None
        self._kept: list[Any] = []  # what the engine gave: an interrupt leaves it to whoever asks next
        self._lock = _RLock()  # the answer is made once

    def __getattr__(self, name: str) -> Any:
        # Most futures are only waited for: the rest is made when it is first needed.
        if name in ("_waiters", "_done_callbacks"):
            return self.__dict__.setdefault(name, [])
        raise AttributeError(name)

    # -- what callers use

    def result(self, timeout: float | None = None) -> T:
        """The value; raises what the call raised, or an error that says how it failed."""
        if not self._pending.wait(timeout):
            raise concurrent.futures.TimeoutError()
        value, error = self._answer or self._take_answer()
        if error is not None:
            try:
                raise error
            finally:
                self = error = None  # type: ignore[assignment]  # a traceback holds this frame
        result: T = value
        return result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `result` would raise."""
        if not self._pending.wait(timeout):
            raise concurrent.futures.TimeoutError()
        _, error = self._answer or self._take_answer()
        if isinstance(error, concurrent.futures.CancelledError):
            raise error
        return error

    def outcome(self, timeout: float | None = None) -> Outcome:
        """What happened, on success and failure alike; raises only if the wait times out or the engine failed."""
        if not self._pending.wait_answer(timeout):
            raise concurrent.futures.TimeoutError()
        return self._take_outcome()

    @property
    def call_id(self) -> int | None:
        """The call's number in its backend, which `Event` has too; None if it never got there."""
        return self._pending.call_id

    def cancel(self) -> bool:
        """Stops the call: queued, it never starts; running, it is killed. False if it was over."""
        return self._pending.cancel() or self.cancelled()

    def cancelled(self) -> bool:
        """Whether the call was cancelled."""
        return self._state == CANCELLED_AND_NOTIFIED

    def running(self) -> bool:
        """Whether a worker has begun the call and not ended it."""
        return self._pending.running()

    def done(self) -> bool:
        """Whether the call is over."""
        return self._pending.over()

    def add_done_callback(self, fn: Callable[[Future[T]], Any]) -> None:
        """Has `fn(future)` called when the call is over, on a thread for callbacks; at once if it is."""
        with self._condition:
            if self._settled is None:
                self._done_callbacks.append(fn)
                return
        self._call_back(fn)

    def _when_settled(self, wake: Callable[[], object]) -> None:
        """As `add_done_callback`, for code of ours that takes no time: no callback of the user's delays it."""
        with self._condition:
            if self._settled is None:
                self._waiters.append(_Waiter(wake))  # type: ignore[arg-type]  # it has the same methods
                return
        wake()

    def __repr__(self) -> str:
        return f"<Future at {id(self):#x} state={self._state.lower()}>"

    # -- what `concurrent.futures.wait` and `as_completed` use

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        # Whoever takes it looks at the state and may then wait to be told.
        condition: threading.Condition
        condition = self.__dict__.get("condition") or self.__dict__.setdefault("condition", threading.Condition())
        if self._settled is None:
            if delivery.has_ended:
                self._pending.wait()
            if not self._pending.watch(delivery.start(), self):
                self._settle()
        return condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        if self._settled is None:
            if self._pending.running():
                return RUNNING
            if not self._pending.over():
                return PENDING
            condition = self.__dict__.get("condition")
            if condition is not None and condition._is_owned():
                return RUNNING  # whoever holds it may have looked before: what changes meanwhile is told afterwards
            self._settle()
        return self._settled or FINISHED

    def _settle(self) -> None:
        """The call is over: tells those who watch, once."""
        ending = self._pending.ending()
        if ending == "uninitialized" and self._shared.report is not None:
            self._shared.report(self._take_outcome())
        condition = self.__dict__.setdefault("condition", threading.Condition())
        with condition:
            if self._settled is not None:
                return
            cancelled = ending == "cancelled" and self._shared.error is None
            self._settled = CANCELLED_AND_NOTIFIED if cancelled else FINISHED
            for waiter in self._waiters:
                tell = (
                    waiter.add_cancelled if cancelled else waiter.add_result if ending == "ok" else waiter.add_exception
                )
                tell(self)
            condition.notify_all()
            if self._done_callbacks:
                delivery.call_back(self)

    def _invoke_callbacks(self) -> None:
        callbacks = self.__dict__.pop("_done_callbacks", [])
        for callback in callbacks:
            self._call_back(callback)

    def _call_back(self, fn: Callable[[Future[T]], Any]) -> None:
        try:
            fn(self)
        except BaseException:  # `sys.exit()` too: it is not this thread's to end
            LOGGER.exception("exception calling callback for %r", self)

    # -- the answer, made once in the thread that asks first

    def _take_outcome(self) -> Outcome:
        with self._lock:
            if self._taken is None:
                try:
                    if not self._kept or type(self._kept[-1]) is not _engine.Outcome:
                        keep(self._kept, self._pending.take)
                    self._taken = self._make_outcome(self._kept[-1])
                except _engine.EngineError as error:
                    self._taken = error
            if isinstance(self._taken, Outcome):
                return self._taken
            raise self._taken.with_traceback(None)

    def _make_outcome(self, raw: _engine.Outcome) -> Outcome:
        outcome = Outcome(raw, closed=not self._shared.trusted)
        outcome._state["call_id"] = self._pending.call_id
        if self._answer is None:
            if type(self._kept[0]) is bytes:
                outcome._put_pickle(self._kept[0])
        elif self._answer[1] is None:
            outcome._value = (self._answer[0],)
        return outcome

    def _take_answer(self) -> tuple[Any, BaseException | None]:
        self._pending.wait_answer()  # of a cancelled call it is on its way
        with self._lock:
            answer = self._answer
            if answer is None:
                answer = self._read_answer()
                if not (isinstance(self._taken, Outcome) and self._taken._closed):  # that can be opened later
                    self._answer = answer
                    self._kept.clear()
        if self._shared.report is not None and self._settled is None:
            self._settle()  # whoever hears of a failed initializer finds the executor broken
        return answer

    def _read_answer(self) -> tuple[Any, BaseException | None]:
        if self._taken is not None or not self._shared.trusted:
            return self._read_outcome()
        if not self._kept:
            keep(self._kept, self._pending.take_pickle)
        pickled = self._kept[0]
        if type(pickled) is not bytes:
            return self._read_outcome()
        try:
            return _loads(pickled), None
        except BaseException as error:
            if is_interrupt(error):
                raise
            return None, self._bad_result(error)

    def _bad_result(self, error: BaseException) -> ResultError:
        text = f"bad_result: the value cannot be unpickled: {type(error).__name__}: {message(error)}"
        outcome = self._take_outcome()
        outcome._value = error
        failure = ResultError(text, outcome)
        # As text: the error itself would keep its frames.
        failure.__cause__ = _RemoteTraceback(f'\n"""\n{report(error)}"""')  # type: ignore[arg-type]  # it takes text
        return failure

    def _read_outcome(self) -> tuple[Any, BaseException | None]:
        try:
            outcome = self._take_outcome()
        except _engine.EngineError as error:
            return None, error
        cancelled = self._pending.ending() == "cancelled"
        if cancelled and self._shared.error is not None:
            return None, BrokenProcessPool(*self._shared.error.args)  # each future has its own
        if cancelled and outcome.verdict != "cancelled":
            return None, Cancelled("cancelled: just as it ended", outcome)
        if outcome.verdict != "ok":
            return None, original(outcome, self._shared.trusted)
        try:
            return outcome.value, None
        except BaseException as error:
            if is_interrupt(error):
                raise
            return None, error if outcome._closed else self._bad_result(error)


class _Waiter:
    """As `concurrent.futures.wait` has them: told as a future is settled."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def add_result(self, future: object) -> None:
        self._wake()

    add_exception = add_cancelled = add_result


def original(outcome: Outcome, trusted: bool) -> BaseException:
    """The exception that a function of the host's own raised, or one that says how the call failed."""
    failure: BaseException = error_of(outcome)
    error = outcome.error
    if trusted and outcome.verdict in ("exception", "bad_result") and outcome._exception is not None:
        try:
            exception = pickle.loads(outcome._exception)
        except BaseException as error_of_its_own:
            if is_interrupt(error_of_its_own):
                raise
            exception = None  # of a class that cannot be made from its arguments, say
        if isinstance(exception, BaseException):
            failure = exception
    if error is not None and error.traceback and (failure.__class__ is not CandidateError):
        cause = _RemoteTraceback(f'\n"""\n{error.traceback}"""')  # type: ignore[arg-type]  # it takes text
        BaseException.__setattr__(failure, "__cause__", cause)  # a frozen dataclass refuses it the usual way
    return failure
