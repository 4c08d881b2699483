"""What an evaluation has to say of its candidates."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from . import _engine
from ._checks import check_path, check_text_or_none

T = TypeVar("T")


@dataclass(frozen=True)
class Diff:
    """Where a candidate gives something else than the base.

    >>> import fairtrial as ft
    >>> diff = ft.Diff(test="pytest", case="tests/test_sum.py::test_zero", scope="status")
    >>> diff.base is None
    True
    """

    test: str
    """The test command, by name."""
    case: str
    scope: str
    """`status`, `missing`, `value` or `stdout`."""
    place: str | None = None
    """Where in a recorded value."""
    base: str | None = None
    candidate: str | None = None
    base_status: str | None = None
    candidate_status: str | None = None
    base_error: str | None = None
    candidate_error: str | None = None
    source: str | None = None
    """The test's text, where it is known."""

    def __repr__(self) -> str:
        return f"<Diff in {self.scope} of {self.case!r}>"


@dataclass(frozen=True)
class Failure:
    """Why a candidate is out, or nothing is known of it.

    >>> import fairtrial as ft
    >>> ft.Failure(kind="no_op", message="changes nothing")
    <Failure no_op: changes nothing>
    """

    kind: str
    """`apply_failed`, `no_op`, `protected_path`, `build_failed`, `timeout`, `crash`, `limit`, `no_results`, `mismatch`,
    `tampered`, `bench_failed`, `infra` or `not_run`."""
    message: str
    diffs: tuple[Diff, ...] = ()
    """The first differences."""
    diffs_total: int = 0
    """How many there are."""
    outcome: dict[str, Any] | None = None
    """The call that showed it: how it ended, and its last lines."""

    def __repr__(self) -> str:
        return f"<Failure {self.kind}: {_line(self.message)}>"


@dataclass(frozen=True)
class Cases:
    """A candidate's test cases beside those of the base.

    >>> import fairtrial as ft
    >>> ft.Cases(passed=211, total=211).fixed
    0
    """

    passed: int
    """As in the base, or better."""
    total: int
    """All that were judged."""
    fixed: int = 0
    """Failing in the base, and passing now."""
    new: int = 0
    """Not in the base."""


@dataclass(frozen=True)
class Baseline:
    """What the tests give without a change.

    >>> import fairtrial as ft
    >>> ft.Baseline(runs=3, cases=212, judged=211, passing=211).quarantined
    ()
    """

    runs: int
    """How often each test command was run."""
    cases: int
    judged: int
    """Cases that candidates are judged by."""
    passing: int
    """Those of them that pass."""
    quarantined: tuple[dict[str, Any], ...] = ()
    """The others: `test`, `case`, and `why`."""


@dataclass(frozen=True)
class SideTimes:
    """Medians of wall times of one side of a bench command.

    >>> import fairtrial as ft
    >>> ft.SideTimes(loops=440, low_loops=0, blocks=12, gross_s=0.25, startup_s=0.1, net_s=0.15).net_s
    0.15
    """

    loops: int | None = None
    """How often the measured run loops; None if the command takes no count."""
    low_loops: int | None = None
    """How often the run that is subtracted loops; None where whole runs are compared."""
    blocks: int = 0
    """Blocks that these times are of."""
    gross_s: float | None = None
    """The whole run."""
    startup_s: float | None = None
    """Start-up and end; None where that is not known."""
    net_s: float | None = None
    """The loops' own time; None where whole runs are compared."""
    per_loop_s: float | None = None
    """One loop's own time; None where whole runs are compared."""
    spread: float | None = None
    """The range of the middle half of the blocks, as a share of the median: of the time that is compared."""


@dataclass(frozen=True)
class BenchTimes:
    """How a bench command was run, and how long that took.

    >>> import fairtrial as ft
    >>> ft.BenchTimes(compared="gross", startup_s=0.02, startup_share=0.7).sides
    {}
    """

    compared: str
    """`net`: ratios are of the time per loop; `gross`: of whole runs, start-up included."""
    loops: int | None = None
    """How often it loops on the base; None if it takes no count."""
    startup_s: float | None = None
    """How long the base takes to start and to end; None if that is not known."""
    startup_spread_s: float | None = None
    """How far apart times of start-up were."""
    startup_source: str | None = None
    """`loops`: from runs of few loops; `interpreter`: its interpreter ran an empty program."""
    startup_share: float | None = None
    """Start-up's part of the base's run, from 0 to 1."""
    sides: dict[str, SideTimes] = field(default_factory=dict)
    """By side: `base`, or a candidate's id."""


@dataclass(frozen=True)
class Evaluation:
    """What is known of one candidate.

    >>> import fairtrial as ft
    >>> ft.Evaluation(name="memo", id="c-91ab03", state="done", verdict="faster", ratio=0.71, interval=(0.69, 0.73))
    <Evaluation c-91ab03 'memo': faster 0.71 [0.69, 0.73]>
    """

    name: str
    """What people call it."""
    state: str
    """How far it got: `done`, `failed`, `duplicate` or `not_run`."""
    id: str | None = None
    """Who it is; None if it could not be staged."""
    rank: int | None = None
    """Its place, from 1; None of those that failed, and of duplicates."""
    verdict: str | None = None
    """`faster`, `slower`, `equal`, `uncertain` or `eliminated`; None if it was not measured."""
    ratio: float | None = None
    """Its time over the base's."""
    interval: tuple[float, float] | None = None
    """Where the true ratio is, at `level`."""
    level: float | None = None
    blocks: int | None = None
    """Blocks of measurements that this rests on."""
    leaning: str | None = None
    """To which side an uncertain one leans."""
    doubt: str | None = None
    """Why the verdict is not that of the interval."""
    confirmed: bool | None = None
    """Whether a new series said the same; None if none was made."""
    tiebreak: dict[str, Any] | None = None
    """What broke a tie with the leader, a count and no measured time: `by`, `used`, `instructions`, `failed`."""
    failure: Failure | None = None
    cases: Cases | None = None
    duplicate_of: str | None = None
    """The candidate that is the same program, and whose result it has."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """Medians of what was measured: `wall_s`, `cpu_s`, `peak_rss_bytes`."""
    gross_startup: float | None = None
    """Start-up's share of the base's run, where whole runs were compared and it is over a third; else None."""
    size: dict[str, int] = field(default_factory=dict)
    """How much it changes: `added`, `removed`, `binary_files`."""
    parent: str | None = None
    origin: str = "given"
    generation: int = 1
    meta: dict[str, Any] | None = None
    """Whatever its maker wanted to keep with it."""

    @property
    def is_correct(self) -> bool:
        """Whether its tests gave what the base's gave."""
        return self.cases is not None and self.state == "done"

    def __repr__(self) -> str:
        known = [self.verdict or (self.failure.kind if self.failure else self.state)]
        if self.ratio is not None and self.interval is not None:
            ratio, low, high = map(_ratio, (self.ratio, *self.interval))
            known.append(f"{ratio} [{low}, {high}]")
        if self.gross_startup is not None:
            known.append(f"(gross: {self.gross_startup:.0%} start-up)")
        return f"<Evaluation {self.id or '-'} {self.name!r}: {' '.join(known)}>"


@dataclass(frozen=True)
class EvaluationReport:
    """What `evaluate` found out.

    >>> import fairtrial as ft, pathlib, tempfile
    >>> here = pathlib.Path(tempfile.mkdtemp())
    >>> (here / "repo").mkdir()
    >>> _ = (here / "repo" / "size").write_text("2")
    >>> _ = (here / "rivals.jsonl").write_text('{"name": "three", "files": {"size": "3"}}')
    >>> report = ft.evaluate(
    ...     {
    ...         "version": 1,
    ...         "repo": here / "repo",
    ...         "candidates": {"jsonl": here / "rivals.jsonl"},
    ...         "tests": [{"name": "small", "command": "test $(cat size) -lt 3"}],
    ...         "output": here / "results",
    ...     }
    ... )
    >>> report, report.evaluations[0]  # doctest: +ELLIPSIS
    (<EvaluationReport of 1 candidates, 0 correct, no winner>, <Evaluation c-... 'three': mismatch>)
    """

    evaluations: tuple[Evaluation, ...]
    """Best first; those that failed last."""
    winner: Evaluation | None
    """The fastest of those that are faster than the base; None if none is."""
    baseline: Baseline
    noise_floor: float | None
    """Half the width of the interval in which the base differs from itself; None if nothing was measured."""
    benches: dict[str, BenchTimes]
    """Loop counts, start-up and times of each bench command; empty if nothing was measured."""
    warnings: tuple[str, ...]
    """What people should know."""
    directory: Path
    """Where the report, the journal and the measurements are."""
    _text: str

    @classmethod
    def _read(cls, text: str) -> EvaluationReport:
        report = json.loads(text)
        evaluations = tuple(_evaluation(one) for one in report["evaluations"])
        winner = report["winner"]
        quarantined = tuple(report["baseline"]["quarantined"])
        return cls(
            evaluations=evaluations,
            winner=next((one for one in evaluations if winner is not None and one.id == winner), None),
            baseline=_record(Baseline, report["baseline"], quarantined=quarantined),
            noise_floor=report["noise_floor"],
            benches={name: _bench(bench) for name, bench in (report["measurement"] or {}).get("benches", {}).items()},
            warnings=tuple(report["warnings"]),
            directory=Path(report["spec"]["output"]),
            _text=text,
        )

    def to_dict(self) -> dict[str, Any]:
        """The whole report, as in `evaluation.json`; a new one each time."""
        report: dict[str, Any] = json.loads(self._text)
        return report

    def rescore(
        self,
        alpha: float | None = None,
        min_effect: float | None = None,
        metric: Literal["wall", "cpu", "instructions"] | None = None,
    ) -> EvaluationReport:
        """The report as it would be on other terms, made from the runs in `directory`; starts and writes nothing.

        Blocks that were never run are not invented: a candidate that left its race early may now be uncertain.
        """
        alpha, min_effect = _share("alpha", alpha), _share("min_effect", min_effect)
        metric_name = check_text_or_none("metric", metric)
        return self._read(_engine.rescore(self._text, self.directory, alpha, min_effect, metric_name))

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as a page that needs nothing else; `report.html` in `directory` is one."""
        text = check_path("path", path)
        if not text:
            raise ValueError("`path` is empty; name a file")
        _engine.write_html(self._text, self.directory, text)

    def __repr__(self) -> str:
        correct = sum(one.is_correct for one in self.evaluations)
        winner = f"winner {self.winner.name!r}" if self.winner else "no winner"
        return f"<EvaluationReport of {len(self.evaluations)} candidates, {correct} correct, {winner}>"


def _evaluation(given: dict[str, Any]) -> Evaluation:
    judged, confirmation, failure = given["judgement"], given["confirmation"], given["failure"]
    return _record(
        Evaluation,
        {**given, **(judged or {})},
        interval=(judged["low"], judged["high"]) if judged else None,
        confirmed=confirmation["confirmed"] if confirmation else None,
        failure=_record(Failure, failure, diffs=tuple(_record(Diff, diff) for diff in failure["diffs"]))
        if failure
        else None,
        cases=_record(Cases, given["cases"]) if given["cases"] else None,
        metrics=given["metrics"] or {},
        size=given["size"] or {},
    )


def _bench(given: dict[str, Any]) -> BenchTimes:
    sides = {name: _record(SideTimes, times) for name, times in given.get("sides", {}).items()}
    return _record(BenchTimes, {"compared": "gross", **given}, sides=sides)


def _ratio(value: float) -> str:
    """A ratio with two digits that say something."""
    digits = 2 if value >= 0.1 else 3 if value >= 0.01 else 4
    return f"{value:.{digits}f}" if value >= 0.001 else f"{value:.1e}"


def _record(cls: type[T], given: Mapping[str, Any], **known: Any) -> T:
    """What of a mapping a class has fields for; newer ones are left out."""
    names = {each.name for each in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in {**given, **known}.items() if name in names})


def _share(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"`{name}` must be a share such as 0.03, not {value!r}")
    return float(value)


def _line(text: str) -> str:
    first, *rest = text.splitlines() or [""]
    return f"{first} ..." if rest else first
