"""What users give, checked as it is given: the error names the parameter and says what would be right (PY-8)."""

from __future__ import annotations

import difflib
import inspect
import math
import operator
import os
from collections.abc import Iterable, Mapping, Set
from typing import Any

from . import _engine


def refuse_unknown(of: Any, given: Mapping[str, Any], known: Iterable[str] | None = None, title: str = "") -> None:
    """Says which keyword was meant. `of` is what takes them, or its name."""
    if known is None and given:
        parameters = inspect.signature(of).parameters.values()
        known = [each.name for each in parameters if each.kind is not each.VAR_KEYWORD and each.name != "self"]
    known = list(known or ())
    for name in given:
        if name not in known:
            title = title or (of if isinstance(of, str) else f"{of.__qualname__}()")
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(known)}"
            raise TypeError(f"{title} got an unexpected keyword argument {name!r}{hint}")


def check_seconds(name: str, value: float | None) -> float | None:
    """A positive, finite number of seconds, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"`{name}` must be a number of seconds, not {value!r}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"`{name}` must be a positive number of seconds, not {value!r}")
    return float(value)


def check_size(name: str, value: int | str | None, least: int = 1) -> int | None:
    """A size in bytes, or None; text has a unit."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = _engine.parse_size(value)
        except ValueError as error:
            raise ValueError(f"`{name}`: {error}") from None
    return check_count(name, value, least)


def check_count(name: str, value: int | None, least: int = 1) -> int | None:
    """A whole number, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
        raise ValueError(f"`{name}` must be a whole number of at least {least}, not {value!r}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False, not {value!r}")
    return value


def check_text(name: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"`{name}` must be text (str), not {_type(value)}")
    return value


def check_text_or_none(name: str, value: Any) -> str | None:
    """A text, or None."""
    return None if value is None else check_text(name, value)


def check_path(name: str, value: Any) -> str | None:
    """A path as text, or None."""
    return check_text_or_none(name, _path(value))


def check_paths(name: str, value: Any) -> tuple[str, ...]:
    """Paths, or other words, as texts."""
    return check_texts(name, [_path(one) for one in check_items(name, value)])


def check_texts(name: str, value: Any) -> tuple[str, ...]:
    """Texts, and not one text."""
    texts = tuple(check_items(name, value))
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"`{name}` must be a list of texts, and has an item of type {_type(text)}")
    return texts


def check_items(name: str, value: Any) -> Iterable[Any]:
    """A list or the like, and not one text."""
    if isinstance(value, (str, bytes)):
        raise ValueError(f"`{name}` is a list, not a text: [{value!r}]")
    if isinstance(value, (Mapping, Set)) or not isinstance(value, Iterable):
        raise ValueError(f"`{name}` must be a list or a tuple, not {_type(value)}")
    return value


def check_named(name: str, value: Any) -> dict[str, Any]:
    """A mapping with texts for keys; none is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"`{name}` must be a mapping (dict), not {_type(value)}")
    for key in value:
        if not isinstance(key, str):
            raise ValueError(f"`{name}` must have texts for keys, and has one of type {_type(key)}")
    return dict(value)


def check_env(env: Any) -> dict[str, str | None]:
    """Names and texts; None unsets a name."""
    if isinstance(env, str):
        raise ValueError(f'`env` must be a mapping (dict); only an executor takes a text, "inherit", and not {env!r}')
    given = check_named("env", env)
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise ValueError(f"`env` must map names to text or None, and {name!r} has a value of type {_type(value)}")
    return given


def check_bytes(name: str, value: Any) -> bytes:
    """Bytes, or text as UTF-8."""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError(f"`{name}` must be text or bytes, not {_type(value)}")
    return bytes(value)


def check_workers(max_workers: Any) -> None:
    """A whole number, or None."""
    if max_workers is not None:
        try:
            operator.index(max_workers)
        except TypeError:
            raise TypeError(f"max_workers must be an integer, not {max_workers!r}") from None
        if max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")


def check_kill_after(value: Any) -> float | None:
    """Seconds from now, or None."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (number and value >= 0):
        raise ValueError(f"kill_after must be a number of seconds that is not negative, not {value!r}")
    return None if value is None else float(value)


def _path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _type(value: object) -> str:
    return type(value).__name__
