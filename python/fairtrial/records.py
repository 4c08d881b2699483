"""What became of a study's runs, read when it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from . import _engine

T = TypeVar("T")
_PAGE = 256  # read at a time


class Pages(Sequence[T], Generic[T]):
    """A sequence whose items are read a page at a time; the last page is kept, and no other."""

    def __init__(self, length: int, read: Callable[[int, int], list[T]]) -> None:
        self._length = length
        self._read = read
        self._last: tuple[int, list[T]] = (-1, [])  # replaced whole: other threads look at it

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(self._length))]
        place = range(self._length)[index]
        number, within = divmod(place, _PAGE)
        if self._last[0] != number:
            self._last = number, self._read(number * _PAGE, _PAGE)
        return self._last[1][within]

    def __iter__(self) -> Iterator[T]:
        for first in range(0, self._length, _PAGE):
            yield from self._read(first, _PAGE)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._length}>"


@dataclass(frozen=True)
class RunRecord:
    """One run: what was planned, and what became of it. Of one that never ended only the plan is known.

    >>> import fairtrial as ft
    >>> ft.RunRecord(run_id="run-1", condition_id="cond-1").status is None
    True
    """

    run_id: str
    condition_id: str
    agent_id: Any = None
    problem_id: Any = None
    replicate: int = 1
    seed: int = 0
    index: int = 0
    order: int = 0
    factors: dict[str, Any] = field(default_factory=dict)
    blocks: dict[str, Any] = field(default_factory=dict)
    status: str | None = None
    """`success`, or how it failed; None if it never began."""
    error: str | None = None
    """`"<Type>: <message>"` of a failure."""
    outputs: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    evaluation_status: str = "none"
    metadata: dict[str, Any] = field(default_factory=dict)
    trace_refs: list[str] = field(default_factory=list)
    latency_s: float = 0.0
    started_at_ns: int | None = None
    finished_at_ns: int | None = None
    attempts: int = 0
    verdict: str | None = None
    stdout: str = ""
    stderr: str = ""
    outcome: dict[str, Any] = field(default_factory=dict)
    """What the engine said: error with its traceback, exit, metrics, isolation."""


class RunRecords(Pages[RunRecord]):
    """The runs of a study in plan order, read from its journal as they are looked at.

    >>> import fairtrial as ft, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "study.yaml")
    >>> _ = path.write_text("study_id: halves\\ntitle: Halves\\nfactors: {x: [0, 2]}\\n")
    >>> runs = ft.run_study(
    ...     path,
    ...     condition_runner=lambda run: {"output": {"y": 1 / run["condition"]["factors"]["x"]}},
    ...     output_dir=path.with_name("results"),
    ... )
    >>> runs.counts, runs[0].error, runs[1].outputs
    ({'failed': 1, 'success': 1}, 'ZeroDivisionError: division by zero', {'y': 0.5})
    """

    def __init__(self, records: _engine.Records) -> None:
        def read(first: int, count: int) -> list[RunRecord]:
            return [RunRecord(**fields) for fields in records.read(first, count)]

        super().__init__(len(records), read)
        self.directory = Path(records.directory)
        """Where the journal and the tables are."""
        self.counts = dict(records.counts)
        """How many runs ended how; what never began is counted as `not_run`."""
        not_run = len(records) - sum(self.counts.values())
        if not_run:
            self.counts["not_run"] = not_run

    def __repr__(self) -> str:
        return f"<RunRecords {self.counts} in {str(self.directory)!r}>"
