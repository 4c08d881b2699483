"""A program that a type checker reads: `submit` keeps parameter and result types (PY-4). It is never run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

import fairtrial as ft

if TYPE_CHECKING:
    from typing_extensions import assert_type


def scale(x: float, by: int = 2, *, name: str = "") -> str:
    return name + str(x * by)


def main() -> None:
    with ft.Executor(2, timeout=5, limits=ft.Limits(memory="512M"), env={"A": "b", "C": None}) as executor:
        future = executor.submit(scale, 1.5, 3, name="n")
        assert_type(future.result(), str)
        assert_type(future.outcome(timeout=1), ft.Outcome)
        assert_type(future.cancel(), bool)
        standard: Future[str] = future
        standard.result()
        executor.submit(scale, "no number")  # type: ignore[arg-type]  # pyright: ignore
        executor.submit(scale)  # type: ignore[call-arg]  # pyright: ignore
        executor.submit(scale, 1.0, nom="n")  # type: ignore[call-arg]  # pyright: ignore
        numbers: Iterator[str] = executor.map(scale, [1.0, 2.0], timeout=3, chunksize=2, buffersize=4)
        for text in numbers:
            assert_type(text, str)
        futures = [executor.submit(scale, x) for x in (1.0, 2.0)]
        for finished in ft.as_completed(futures, timeout=3):
            assert_type(finished, ft.Future[str])
            assert_type(finished.outcome().ok, bool)
        numbered = {future: number for number, future in enumerate(futures)}
        for finished in ft.as_completed(numbered):
            assert_type(numbered[finished], int)
        done, not_done = ft.wait(futures, return_when=ft.FIRST_COMPLETED)
        assert_type(done, set[ft.Future[str]])
        for finished in ft.wait(futures, 1, ft.FIRST_EXCEPTION).not_done | not_done:
            assert_type(finished.call_id, "int | None")
        executor.options(timeot=1)  # type: ignore[arg-type]  # pyright: ignore
        executor.options(timeout=1, echo=False).submit(len, [1]).add_done_callback(lambda done: print(done.result()))
        executor.shutdown(wait=True, cancel_futures=True, kill_after=1.0)

    ft.Executor(2, timeot=3)  # type: ignore[arg-type]  # pyright: ignore
    ft.LocalBackend(max_cals=3)  # type: ignore[arg-type]  # pyright: ignore
    ft.Limits(memroy=3)  # type: ignore[arg-type]  # pyright: ignore
    ft.Call(source="", functoin="f")  # type: ignore[arg-type]  # pyright: ignore
    ft.run_code("", "f", timeout_s=3)  # type: ignore[call-arg]  # pyright: ignore
    ft.joblib.register()
    call = ft.Call(
        source="def f(): pass", function="f", args=[1], kwargs={"a": 2}, timeout_s=1, limits={"memory": "1G"}
    )
    outcome = ft.run(call)
    assert_type(outcome.verdict, str)
    assert_type(outcome.error, "ft.Error | None")
    if outcome.exit is not None:
        assert_type(outcome.exit.code, "int | None")
    with ft.LocalBackend(max_workers=2, max_calls=3) as backend:
        unsubscribe = backend.on_complete(lambda event: print(event.verdict))
        unsubscribe()
        ft.run_code("def f(): pass", "f", backend=backend, timeout=3)
        any_backend: ft.Backend = backend
        any_backend.shutdown()
    try:
        pass
    except ft.TimedOut as error:
        print(error.outcome)


def of_any_executor(futures: list[Future[str]]) -> None:
    for future in ft.as_completed(futures):
        assert_type(future, Future[str])


async def later(call: ft.Call) -> ft.Outcome:
    async with ft.LocalBackend() as backend:
        return await ft.arun(call, backend)
