"""`evaluate`: candidates against a repository."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from . import _engine, _lifetime
from ._checks import check_flag, check_path, refuse_unknown
from ._interrupts import is_interrupt
from .backends import engine_options
from .evaluations import EvaluationReport
from .futures import Shared

_DEEPEST = 100  # as in an evaluation file


def evaluate(
    spec: str | os.PathLike[str] | Mapping[str, Any],
    *,
    resume: bool = False,
    fresh: bool = False,
    on_event: Callable[[dict[str, Any]], object] | None = None,
    proposer: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    **unknown: NoReturn,
) -> EvaluationReport:
    """Tests candidates beside a repository as it is, measures those that are correct, and ranks them.

    `spec` is an evaluation file, or a mapping with the same keys whose paths are seen from the current directory. What
    is wrong with it is a `ValueError` with a line for each fault. That no candidate is correct raises nothing; that the
    evaluation could not be made is an `EngineError`.

    `resume` goes on with the evaluation in the `output` directory; `fresh` begins anew there, and removes what it left.
    Without either, that directory must be empty (a `FileExistsError` says that it is not); if the last evaluation there
    found its base unusable, the next begins anew in any case. `on_event` is called in this thread with each event, a
    dict; what it raises is logged, and while it is slow the evaluation goes on. Ctrl-C ends all that runs before
    `KeyboardInterrupt` is raised.

    `proposer` is asked for candidates, as `search` in the spec says, in the place of whom that names. It is called in
    threads of its own with a request, a dict with `kind`, `n`, `base`, `parents` and `ancestry`, and returns
    `{"candidates": [{"patch": … or "files": …}]}`. What it raises is logged, and is no answer. If it answers nothing
    for as long as `timeout` in `search.proposer` says (2 minutes), it hangs: it is not asked again, and the evaluation
    goes on without it.

    >>> import fairtrial as ft, pathlib, tempfile
    >>> here = pathlib.Path(tempfile.mkdtemp())
    >>> (here / "repo").mkdir()
    >>> _ = (here / "repo" / "numbers.sh").write_text("seq 3 | sort -r")
    >>> _ = (here / "rivals.jsonl").write_text('{"name": "without sort", "files": {"numbers.sh": "seq 3 -1 1"}}')
    >>> report = ft.evaluate(
    ...     {
    ...         "version": 1,
    ...         "repo": here / "repo",
    ...         "candidates": {"jsonl": here / "rivals.jsonl"},
    ...         "tests": [{"command": ["sh", "numbers.sh"], "output": "compare"}],
    ...         "output": here / "results",
    ...     }
    ... )
    >>> [(one.name, one.is_correct) for one in report.evaluations]
    [('without sort', True)]
    """
    refuse_unknown(evaluate, unknown)
    check_flag("resume", resume)
    check_flag("fresh", fresh)
    if resume and fresh:
        raise ValueError("`resume` goes on with what `fresh` would remove; give one of them")
    for name, given in (("on_event", on_event), ("proposer", proposer)):
        if given is not None and not callable(given):
            raise TypeError(f"`{name}` must be a callable, not {given!r}")
    requests = None if proposer is None else _engine.Requests()
    evaluator = _evaluator(spec, requests)
    with _lifetime.lifetime.lock:
        _lifetime.check_kernel()
        owner = _lifetime.Owner(evaluator.backend(), None, Shared())
        _lifetime.lifetime.add(owner, _lifetime.lifetime.backends)
    try:
        with _answered(requests, proposer):
            told = None if on_event is None else _teller(on_event)
            return EvaluationReport._read(evaluator.evaluate(resume, fresh, told))
    finally:
        owner.shutdown(True, True, 0.0)


def _evaluator(
    spec: str | os.PathLike[str] | Mapping[str, Any], requests: _engine.Requests | None
) -> _engine.Evaluator:
    if isinstance(spec, Mapping):
        return _engine.Evaluator.from_json(json.dumps(_plain(spec)), engine_options(), requests)
    if not isinstance(spec, (str, os.PathLike)):
        raise TypeError(f"`spec` must be a path or a mapping (dict), not {type(spec).__name__}")
    path = check_path("spec", spec)
    if not path:
        raise ValueError("`spec` is empty; name an evaluation file")
    return _engine.Evaluator.load(path, engine_options(), requests)


def _plain(value: Any, place: str = "", depth: int = 0) -> Any:
    """A value as JSON has it; paths are texts."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if depth > _DEEPEST:
        problem = f"nested deeper than {_DEEPEST} levels"
    elif isinstance(value, Mapping):
        keys = [_plain(key, place, depth) for key in value]
        if all(isinstance(key, str) for key in keys):
            places = [f"{place}.{key}" if place else key for key in keys]
            return {key: _plain(value[key], within, depth + 1) for key, within in zip(keys, places)}
        problem = "its keys must be texts"
    elif isinstance(value, (list, tuple)):
        return [_plain(one, f"{place}[{index}]", depth + 1) for index, one in enumerate(value)]
    elif isinstance(value, str) and not value.isascii() and value.encode(errors="ignore").decode() != value:
        problem = "must be text that can be encoded"
    elif isinstance(value, float) and not math.isfinite(value):
        problem = f"must be a finite number, not {value!r}"
    elif value is None or isinstance(value, (bool, int, float, str)):
        return value
    else:
        problem = f"must be plain data, not {type(value).__name__}"
    raise ValueError(f"{place or 'spec'}: {problem}")


def _teller(on_event: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], None]:
    """Raises only what is meant for whoever waits here."""

    def tell(event: dict[str, Any]) -> None:
        try:
            on_event(event)
        except BaseException as error:
            if is_interrupt(error):
                raise
            import logging

            logging.getLogger("fairtrial").exception("`on_event` failed on %s", event["event"])

    return tell


@contextmanager
def _answered(requests: _engine.Requests | None, proposer: Callable[[dict[str, Any]], Any] | None) -> Iterator[None]:
    """Has the proposer called with each request. Whoever still thinks at the end is not waited for."""
    if requests is None:
        yield
        return

    def serve() -> None:
        while (request := requests.next()) is not None:
            threading.Thread(target=_answer, args=(request, proposer), name="fairtrial-proposer", daemon=True).start()

    server = threading.Thread(target=serve, name="fairtrial-requests", daemon=True)
    server.start()
    try:
        yield
    finally:
        requests.close()
        server.join()


def _answer(request: _engine.Request, proposer: Callable[[dict[str, Any]], Any]) -> None:
    try:
        request.answer(json.dumps(_plain(proposer(request.read()), "answer")))
    except BaseException as error:
        request.decline(f"{type(error).__name__}: {error}")
        import logging

        logging.getLogger("fairtrial").exception("the proposer failed")
