"""Studies: loaded, planned and run from Python, with the caller's own functions as agents."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from . import _engine, _lifetime
from ._checks import check_count, check_flag, check_path, check_text_or_none, check_texts, refuse_unknown
from .backends import engine_options
from .errors import StudyError
from .executor import default_workers
from .futures import Shared
from .records import Pages, RunRecords

_DRE_PACKAGES = [f"design-research-{part}" for part in ("agents", "analysis", "experiments", "problems")]


class Study:
    """A study file, read and found valid.

    >>> import fairtrial as ft, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "study.yaml")
    >>> _ = path.write_text("study_id: sizes\\ntitle: Sizes\\nfactors: {size: [1, 2]}\\n")
    >>> study = ft.Study.load(path)
    >>> study.study_id, len(study.plan(condition_runner=print))
    ('sizes', 2)
    """

    def __init__(self, _study: _engine.Study, _path: Path) -> None:
        self._study = _study
        self.path = _path
        """The file."""

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, compat: Literal["native", "dre-0.2"] | None = None) -> Study:
        """Reads a study file; raises `StudyError` with everything that is wrong with it. `compat` is as in the file."""
        text = check_path("path", path)
        if not text:
            raise ValueError("`path` is empty; name a study file")
        with _told():
            return cls(_engine.Study.load(text, check_text_or_none("compat", compat)), Path(text))

    @property
    def study_id(self) -> str:
        """Its id."""
        return self._study.study_id

    @property
    def compat(self) -> str:
        """Whose rules it was read by: `native` or `dre-0.2`."""
        return self._study.compat

    @property
    def output_dir(self) -> Path:
        """Where results go unless told otherwise, relative to the current directory."""
        return Path(self._study.output_dir)

    @property
    def warnings(self) -> list[str]:
        """What is odd about the file, but no error."""
        return self._study.warnings

    @property
    def definition(self) -> dict[str, Any]:
        """The file in full, defaults filled in."""
        return self._study.definition()

    def plan(
        self,
        agents: Mapping[str, Any] | None = None,
        problems: Mapping[str, Any] | None = None,
        condition_runner: Any = None,
    ) -> Plan:
        """What would run; starts nothing. Bindings are as those of `run_study`, for files that leave them to a host."""
        plan, _ = self._planned(agents, problems, condition_runner)
        return Plan(self.study_id, plan)

    def _planned(
        self, agents: Mapping[str, Any] | None, problems: Mapping[str, Any] | None, condition_runner: Any
    ) -> tuple[_engine.Plan, list[str]]:
        """The plan, and whose changes cannot be seen."""
        from ._hosted import Binder

        binder = Binder(self._study.calls_as_dre)
        bound_agents = [(key, binder.binding(f"agent `{key}`", one)) for key, one in _ids("agents", agents)]
        packets = [(key, binder.packet(key, one)) for key, one in _ids("problems", problems)]
        runner = None if condition_runner is None else binder.binding("the condition runner", condition_runner)
        with _told():
            study = self._study.bind(bound_agents or None, packets or None, runner)
            return study.plan(), binder.unknown

    def __repr__(self) -> str:
        return f"<Study {self.study_id!r} of {str(self.path)!r}>"


class Plan:
    """What a study would run: conditions, and runs in plan order, each made when it is looked at.

    >>> import fairtrial as ft, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "study.yaml")
    >>> _ = path.write_text("study_id: sizes\\ntitle: Sizes\\nfactors: {size: [1, 2]}\\n")
    >>> plan = ft.Study.load(path).plan()
    >>> plan, plan.runs[1]["factors"]
    (<Plan of 'sizes': 2 conditions, 2 runs>, {'size': 2})
    """

    def __init__(self, _study_id: str, _plan: _engine.Plan) -> None:
        self.study_id = _study_id
        """The study's id."""
        self._plan = _plan
        self.counts = dict(zip(("conditions", "admissible", "runs"), _plan.counts()))
        """How many conditions, admissible conditions and runs there are."""
        self.runs: Sequence[dict[str, Any]] = Pages(self.counts["runs"], _plan.runs)
        """The runs: ids, seeds, factors and blocks of their conditions, places in plan and run order."""

    @property
    def conditions(self) -> list[dict[str, Any]]:
        """All conditions, those that are not admissible with the reasons."""
        return self._plan.conditions()

    @property
    def warnings(self) -> list[str]:
        """What is odd about file, design and plan, but no error."""
        return self._plan.warnings

    @property
    def digest_runs(self) -> str:
        """SHA-256 over run ids and seeds: equal plans have equal ones."""
        return self._plan.digest_runs

    def __len__(self) -> int:
        return self.counts["runs"]

    def __repr__(self) -> str:
        return f"<Plan of {self.study_id!r}: {self.counts['conditions']} conditions, {len(self)} runs>"


class Progress(NamedTuple):
    """How far a study is.

    >>> import fairtrial as ft
    >>> ft.Progress(planned=8, done=3, succeeded=2, failed=1, running=4).done
    3
    """

    planned: int
    done: int
    succeeded: int
    failed: int
    running: int


def run_study(
    study: Study | str | os.PathLike[str],
    agents: Mapping[str, Any] | None = None,
    problems: Mapping[str, Any] | None = None,
    condition_runner: Any = None,
    parallelism: int | None = None,
    resume: bool = False,
    *,
    output_dir: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    retry: Iterable[str] = (),
    changed: Literal["refuse", "rerun", "accept"] = "refuse",
    progress: bool | Callable[[Progress], object] = False,
    **unknown: NoReturn,
) -> RunRecords:
    """Runs a study, or what is left of it, and returns its runs in plan order. A run that fails raises nothing.

    `agents` maps ids to callables: each is called in a worker with the run as its one argument, a dict, and returns
    `{"output": {…}}`. A mapping `{"call": function, "timeout": "30s", …}` has the options of a binding in a study file;
    without a function it is one. `problems` maps ids to packets, mappings with `payload`, `brief`, `family`, `metadata`
    and `evaluator`, which may be a callable of `{"output": …, "run": …}`. `condition_runner` runs conditions without
    agents.

    `resume` goes on with a study that is in `output_dir` already, `fresh` moves it aside. A callable is known again by
    the content of its module's file and its name, or by a `version`: one that changed is refused unless `changed` says
    what to do. `retry` has statuses of failed runs that are to be run again. Ctrl-C stops and records what runs, writes
    the tables, and then raises `KeyboardInterrupt`.

    >>> import fairtrial as ft, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "study.yaml")
    >>> _ = path.write_text("study_id: doubling\\ntitle: Does it double?\\nfactors: {x: [1, 2]}\\n")
    >>> def double(run):
    ...     return {"output": {"y": 2 * run["condition"]["factors"]["x"]}}
    >>> runs = ft.run_study(path, condition_runner=double, output_dir=path.with_name("results"))
    >>> runs.counts, [run.outputs["y"] for run in runs]
    ({'success': 2}, [2, 4])
    """
    refuse_unknown(run_study, unknown)
    if not isinstance(study, Study):
        study = Study.load(study)
    if check_flag("resume", resume) and check_flag("fresh", fresh):
        raise ValueError("`resume` and `fresh` exclude each other")
    if changed not in ("refuse", "rerun", "accept"):
        raise ValueError(f"`changed` must be 'refuse', 'rerun' or 'accept', not {changed!r}")
    directory = check_path("output_dir", output_dir)
    workers = check_count("parallelism", parallelism) or study._study.parallelism or default_workers()
    request = {
        "directory": directory or os.fspath(study.output_dir),
        "mode": "resume" if resume else "fresh" if fresh else "new",
        "retry": check_texts("retry", retry),
        "changed": changed,
        "workers": workers,
        **_site(),
    }
    plan, unseen = study._planned(agents, problems, condition_runner)
    if resume and unseen:
        import warnings

        reason = "from no file and without `version`: finished runs are reused, whatever has changed"
        warnings.warn(f"{', '.join(unseen)}: {reason}", stacklevel=2)
    return _run(plan, request, _teller(progress))


def _run(plan: _engine.Plan, request: dict[str, Any], told: Callable[..., object] | None) -> RunRecords:
    with _lifetime.lifetime.lock:
        _lifetime.check_kernel()
        engine = _engine.Backend(engine_options(max_workers=request["workers"]))
        owner = _lifetime.Owner(engine, None, Shared())
        _lifetime.lifetime.add(owner, _lifetime.lifetime.backends)
    try:
        with _told():
            return RunRecords(_engine.run_study(plan, engine, request, told))
    finally:
        owner.shutdown(True, True, 0.0)


def _ids(name: str, given: Mapping[str, Any] | None) -> Iterable[tuple[str, Any]]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise TypeError(f"`{name}` must be a mapping (dict) of ids, not {type(given).__name__}")
    for key in given:
        if not isinstance(key, str) or not key.strip():
            raise TypeError(f"`{name}` must have texts for ids, and has {key!r}")
    return given.items()


def _site() -> dict[str, Any]:
    """Where and by what the study is run, for the record."""
    import platform

    system = os.uname()
    return {
        "argv": [str(word) for word in getattr(sys, "argv", [])],
        "host": system.nodename,
        "platform": f"{system.sysname}-{system.machine}",
        "python_version": platform.python_version(),
        "packages": list(_versions()),
    }


def _versions() -> Iterator[tuple[str, str]]:
    from importlib.metadata import PackageNotFoundError, version

    for name in _DRE_PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            pass  # said to be so by whoever does not find it here


def _teller(progress: bool | Callable[[Progress], object]) -> Callable[..., object] | None:
    if callable(progress):
        return lambda *counts: progress(Progress(*counts))
    return _show if check_flag("progress", progress) else None


def _show(*counts: int) -> None:
    """On a terminal one line that changes, else a line for each tenth."""
    now = Progress(*counts)
    line = f"{now.done}/{now.planned} runs: {now.succeeded} ok, {now.failed} failed, {now.running} running"
    stream = sys.stderr
    if stream is None:
        return
    if stream.isatty():
        stream.write(f"\r{line}\x1b[K" + ("\n" if now.done == now.planned else ""))
    elif now.done * 10 // now.planned != (now.done - 1) * 10 // now.planned:
        stream.write(f"{line}\n")
    stream.flush()


@contextmanager
def _told() -> Iterator[None]:
    """What is wrong with a study, as ours."""
    try:
        yield
    except _engine.InvalidStudy as error:
        raise StudyError(str(error)) from None
