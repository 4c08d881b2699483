"""What workers get of the host's `logging`: as much of what a forked child would have as can be said in plain data."""

from __future__ import annotations

import logging
import marshal
import sys
from typing import Any

_STYLES = {logging.PercentStyle: "%", logging.StrFormatStyle: "{", logging.StringTemplateStyle: "$"}


class HostLogging:
    """How `logging` is set up, as the shim reads it: as it was when the first call was submitted."""

    def __init__(self) -> None:
        self._text: str | None = None
        self._is_final = False

    def text(self, final: bool) -> str | None:
        """None where it is as Python starts with it."""
        if not self._is_final:
            self._text = _describe()
            self._is_final = final
        return self._text


def _describe() -> str | None:
    root = logging.getLogger()
    loggers = [(name, logger) for name, logger in root.manager.loggerDict.items() if isinstance(logger, logging.Logger)]
    levels = [(name, logger.level) for name, logger in sorted(loggers, key=lambda each: each[0]) if logger.level]
    if root.level != logging.WARNING:
        levels.insert(0, ("", root.level))
    handlers = [_handler(handler) for handler in root.handlers if _stream(handler) is not None]
    if not levels and not handlers and not root.manager.disable:
        return None
    # Whole numbers and texts only: levels may be of an enum of the host's.
    levels = [(str(name), int(level)) for name, level in levels]
    return marshal.dumps((int(root.manager.disable), levels, handlers), 2).hex()


def _stream(handler: logging.Handler) -> str | None:
    """The standard stream that a plain handler writes to, by name. Files, sockets and the like stay behind."""
    if type(handler) is not logging.StreamHandler:
        return None
    streams = {"stderr": (sys.stderr, sys.__stderr__), "stdout": (sys.stdout, sys.__stdout__)}
    return next((name for name, them in streams.items() if any(handler.stream is each for each in them)), None)


def _handler(handler: logging.Handler) -> tuple[str | None, int, tuple[Any, ...] | None]:
    formatter = handler.formatter
    if type(formatter) is not logging.Formatter:  # none, or one whose class workers may not have
        return _stream(handler), handler.level, None if formatter is None else (logging.BASIC_FORMAT, None, "%")
    style = _STYLES.get(type(formatter._style), "%")
    return _stream(handler), handler.level, (formatter._fmt, formatter.datefmt, style)
