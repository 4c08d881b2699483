"""Waiting for several futures: the standard library's functions, which here keep the type of what they are given."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

__all__ = ["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION", "as_completed", "wait"]

F = TypeVar("F", bound="concurrent.futures.Future[Any]")

if TYPE_CHECKING:

    class DoneAndNotDone(NamedTuple, Generic[F]):
        """What `wait` returns."""

        done: set[F]
        not_done: set[F]


def as_completed(fs: Iterable[F], timeout: float | None = None) -> Iterator[F]:
    """The futures in the order in which they finish; `TimeoutError` if they have not after `timeout` seconds from now.

    >>> import fairtrial as ft
    >>> with ft.Executor(2) as executor:
    ...     futures = {executor.submit(pow, 2, n): n for n in (3, 4)}
    ...     sorted((futures[future], future.result()) for future in ft.as_completed(futures))
    [(3, 8), (4, 16)]
    """
    return concurrent.futures.as_completed(fs, timeout)  # type: ignore[return-value]  # it yields what it was given


def wait(fs: Iterable[F], timeout: float | None = None, return_when: str = ALL_COMPLETED) -> DoneAndNotDone[F]:
    """Two sets, `done` and `not_done`, once `return_when` holds or `timeout` seconds have passed.

    >>> import fairtrial as ft
    >>> with ft.Executor(1) as executor:
    ...     done, not_done = ft.wait([executor.submit(pow, 2, 3)], return_when=ft.FIRST_COMPLETED)
    ...     len(done), len(not_done)
    (1, 0)
    """
    return concurrent.futures.wait(fs, timeout, return_when)  # type: ignore[return-value]  # as above
