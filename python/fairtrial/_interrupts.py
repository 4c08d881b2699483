"""What signal handlers raise: it can come between any two steps, and is for whoever runs them, not for a call."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from itertools import starmap
from types import CodeType, MethodType
from typing import Any

_ONCE: tuple[tuple[()]] = ((),)


def is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C, or was raised in a signal handler that this process has."""
    if isinstance(error, KeyboardInterrupt):
        return True
    handlers = None
    entry = error.__traceback__
    while entry is not None:
        if handlers is None:
            handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
        if entry.tb_frame.f_code in handlers:
            return True
        entry = entry.tb_next
    return False


def keep(kept: list[Any], take: Callable[[], Any]) -> None:
    """Appends what `take()` gives, which can be had only once: handlers run between steps, and this is one step."""
    kept.extend(starmap(take, _ONCE))


def _code(handler: Any) -> CodeType | None:
    if isinstance(handler, partial):
        return _code(handler.func)
    if isinstance(handler, MethodType):
        return _code(handler.__func__)
    code = getattr(handler, "__code__", None)
    if code is None and not isinstance(handler, (int, type(None))):
        code = getattr(getattr(type(handler), "__call__", None), "__code__", None)
    return code if isinstance(code, CodeType) else None
