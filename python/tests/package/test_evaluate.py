"""Evaluations from Python: CA-4, CA-5, and what of CA-93 and CA-96 is about a host."""

import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from evaluated import RIVALS, lasting
from support import ROOT, binary, wait_until

import fairtrial as ft

# -- reports


def test_a_report_has_its_candidates_ranked(project):
    """CA-4, CA-5: neither a wrong candidate nor one that cannot be applied raises anything"""
    report = ft.evaluate(project.spec())
    assert [(one.rank, one.name, one.state) for one in report.evaluations] == [
        (1, "shorter", "done"),
        (None, "wrong", "failed"),
        (None, "nothing", "failed"),
        (None, "outside", "failed"),
        (None, "again", "duplicate"),
    ]
    shorter, wrong, _, outside, again = report.evaluations
    assert shorter.is_correct and shorter.cases == ft.Cases(passed=1, total=1) and shorter.meta == {"by": "hand"}
    assert (shorter.verdict, shorter.ratio, shorter.interval, shorter.failure) == (None, None, None, None)
    assert again.duplicate_of == shorter.id and not again.is_correct
    assert (wrong.failure.kind, wrong.failure.diffs_total) == ("mismatch", 1)
    (diff,) = wrong.failure.diffs
    assert (diff.test, diff.scope, diff.base, diff.candidate) == ("answer", "stdout", "42\n", "41\n")
    assert (outside.failure.kind, outside.id) == ("apply_failed", None)
    assert (report.winner, report.noise_floor) == (None, None)
    assert (report.baseline.runs, report.baseline.judged, report.baseline.quarantined) == (3, 1, ())
    assert report.directory == project.directory / "results"
    assert json.loads((report.directory / "evaluation.json").read_text()) == report.to_dict()
    report.write_html("page.html")
    assert Path("page.html").read_text() == (report.directory / "report.html").read_text()
    with pytest.raises(OSError, match="nowhere"):
        report.write_html("nowhere/page.html")
    with pytest.raises(ValueError, match="nothing was measured"):
        report.rescore(alpha=0.1)


def test_that_no_candidate_is_correct_raises_nothing(project):
    """CA-5"""
    project.rivals(RIVALS[1])
    report = ft.evaluate(project.spec())
    assert [one.is_correct for one in report.evaluations] == [False] and report.winner is None


def test_a_path_and_a_mapping_give_the_same(project, monkeypatch):
    """CA-4: paths of a file are seen from its directory, those of a mapping from the current one"""
    by_mapping = ft.evaluate(project.spec(output=project.directory / "by-mapping"))
    (project.directory / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    by_path = ft.evaluate(project.file(output="by-path"))
    assert by_path.directory == project.directory / "by-path"
    assert lasting(by_path, "spec") == lasting(by_mapping, "spec")
    assert lasting(ft.evaluate(str(project.file(output="by-text"))), "spec") == lasting(by_path, "spec")
    differs = {"output"}
    specs = [report.to_dict()["spec"] for report in (by_path, by_mapping)]
    assert {key for key in specs[0] if specs[0][key] != specs[1][key]} == differs


def test_a_resolved_spec_means_the_same(project):
    """CA-10"""
    report = ft.evaluate(project.spec())
    again = ft.evaluate(report.to_dict()["spec"] | {"output": "again"})
    assert lasting(again, "spec") == lasting(report, "spec")


def test_reports_are_frozen_plain_and_one_line_long(project):
    """CA-4"""
    report = ft.evaluate(project.spec())
    for thing in (report, report.baseline, *report.evaluations, report.evaluations[1].failure):
        assert pickle.loads(pickle.dumps(thing)) == thing and "\n" not in repr(thing)
        with pytest.raises(AttributeError):
            thing.name = "other"
    assert repr(report) == "<EvaluationReport of 5 candidates, 1 correct, no winner>"
    report.to_dict()["evaluations"].clear()
    assert len(report.to_dict()["evaluations"]) == 5


def verdicts(report):
    """Who ended how. Texts of errors hold places and times of one run."""

    def of(one):
        failure = one["failure"] or {}
        return one["id"], one["name"], one["state"], one["cases"], failure.get("kind"), failure.get("diffs_total")

    return report["winner"], [of(one) for one in report["evaluations"]]


def test_the_report_is_that_of_the_command(project, monkeypatch):
    """CA-4: twelve rivals, but for their speed"""
    command = binary()
    # Its tests are pytest's, which this interpreter has.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    rivals = shutil.copytree(ROOT / "examples" / "rivals", project.directory / "rivals", ignore=lambda *_: ["out"])
    file = rivals / "EVAL.yaml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith(("bench:", "  - {name: layers"))))
    by_command = subprocess.run([command, "evaluate", file, "--json"], capture_output=True, text=True, timeout=120)
    assert by_command.returncode == 0, by_command.stderr
    shutil.rmtree(rivals / "out")
    report = ft.evaluate(file)
    assert verdicts(report.to_dict()) == verdicts(json.loads(by_command.stdout))
    assert sum(one.is_correct for one in report.evaluations) > 1
    assert {one.failure.kind for one in report.evaluations if one.failure} > {"mismatch", "protected_path", "timeout"}


def test_the_fastest_is_the_winner_and_can_be_judged_again(project):
    """CA-4, CA-81, CA-82: measured for real, in processor time and with a difference that no busy machine hides"""
    counting = "i=0\nwhile [ $i -lt {} ]; do i=$((i + 1)); done\necho 42\n"
    (project.repo / "answer.sh").write_text(counting.format(60000))
    project.rivals({"name": "short", "files": {"answer.sh": "echo 42\n"}})
    measure = {"metric": "cpu", "max_blocks": 8, "confirm": False, "pin": "off", "repeats": 0}
    report = ft.evaluate(project.spec(bench=[{"name": "all", "command": "sh answer.sh"}], measure=measure))
    (quick,) = report.evaluations
    assert report.winner is quick and quick.verdict == "faster", report.to_dict()
    low, high = quick.interval
    assert low <= quick.ratio <= high < 1 and quick.blocks == 8 and quick.confirmed is None
    assert 0 < quick.metrics["wall_s"] and report.noise_floor is not None
    rescored = report.rescore()
    assert rescored == report and rescored.to_dict() == report.to_dict()
    strict = report.rescore(min_effect=1.0, metric="cpu")
    assert strict.evaluations[0].ratio == quick.ratio
    assert strict.to_dict()["spec"]["measure"]["min_effect"] == 1.0
    strict.write_html(project.directory / "strict.html")
    page = (project.directory / "strict.html").read_text()
    assert "short" in page and page != (report.directory / "report.html").read_text()
    for terms in ({"metric": "heat"}, {"alpha": "much"}, {"alpha": 2.0}, {"min_effect": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(terms))):
            report.rescore(**terms)
    assert repr(quick).startswith(f"<Evaluation {quick.id} 'short': faster 0.")
    bench = report.benches["all"]
    assert (bench.compared, bench.startup_s, quick.gross_startup) == ("gross", None, None)
    assert bench.sides["base"].gross_s > bench.sides[quick.id].gross_s > 0


def test_times_of_each_side_are_in_the_report(project):
    """FA-22: a command that loops is compared by the time per loop, and both runs are told"""
    project.rivals({"name": "short", "files": {"answer.sh": "echo 42 # at once\n"}})
    (project.repo / "answer.sh").write_text("sleep 0.01\necho 42\n")
    command = "sleep 0.1; for n in $(seq {loops}); do sh answer.sh > /dev/null; done"
    measure = {"max_blocks": 6, "confirm": False, "pin": "off", "repeats": 0}
    report = ft.evaluate(project.spec(bench=[{"name": "loops", "command": command, "loops": "auto"}], measure=measure))
    (short,) = report.evaluations
    bench = report.benches["loops"]
    assert (bench.compared, bench.startup_source, short.gross_startup) == ("net", "loops", None)
    assert bench.startup_s > 0.09 and 0 < bench.startup_share < 1
    base, own = bench.sides["base"], bench.sides[short.id]
    assert set(bench.sides) == {"base", short.id} and base.low_loops == own.low_loops == 0
    for times in (base, own):
        assert times.gross_s > times.startup_s > 0.09 and times.gross_s > times.net_s > 0
        assert times.per_loop_s == pytest.approx(times.net_s / times.loops) and times.blocks > 0
    assert base.per_loop_s > 0.01


# -- what is refused


def test_faults_of_a_file_are_lines_with_positions(project):
    """CA-5, CA-6"""
    path = project.directory / "EVAL.yaml"
    path.write_text("version: 1\ncandidates: {patches: p}\ntests:\n  - {comand: make, timeout: soon}\nparalel: 3\n")
    with pytest.raises(ValueError) as caught:
        ft.evaluate(path)
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{path}:{at}" for at in ("4:6", "4:29", "5:1")], lines
    assert "did you mean `command`?" in str(caught.value)
    with pytest.raises(ValueError, match=r"missing.yaml:1:1: cannot read it"):
        ft.evaluate("missing.yaml")
    assert sorted(each.name for each in project.directory.iterdir()) == ["EVAL.yaml", "repo", "rivals.jsonl"]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"paralel": 3}, r"paralel: unknown key `paralel` in the evaluation; did you mean `parallel`\?"),
        ({"parallel": 0}, r"parallel: "),
        ({"tests": [{"command": "make", "timeout": "soon"}]}, r"tests\[0\]\.timeout: "),
        ({"tests": [{"command": object()}]}, r"tests\[0\]\.command: must be plain data, not object"),
        ({"measure": {"alpha": float("nan")}}, r"measure\.alpha: must be a finite number, not nan"),
        ({"env": {"set": {3: "x"}}}, r"env\.set: its keys must be texts"),
        ({"repo": "p\udcff"}, r"repo: must be text that can be encoded"),
        ({"repo": "nowhere"}, r"repo: `.*/nowhere` is not a directory"),
        ({"base": "no-such-commit"}, r"no-such-commit"),
        ({"candidates": {"jsonl": "none.jsonl"}}, r"candidates.*none\.jsonl"),
        ({"search": {"concurrency": 2}}, r"search: `proposer` is missing in `search`"),
    ],
    ids=lambda given: None if isinstance(given, str) else next(iter(given)),
)
def test_faults_of_a_mapping_have_the_path_of_keys(project, more, line):
    """CA-5, CA-8"""
    with pytest.raises(ValueError, match=line):
        ft.evaluate(project.spec(**more))
    assert not (project.directory / "results").exists()


def test_a_mapping_that_holds_itself_is_refused(project):
    """CA-5"""
    spec = project.spec()
    spec["env"] = spec
    with pytest.raises(ValueError, match="nested deeper than 100 levels"):
        ft.evaluate(spec)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda spec: ft.evaluate(3), TypeError, "`spec` must be a path or a mapping"),
        (lambda spec: ft.evaluate(""), ValueError, "`spec` is empty"),
        (lambda spec: ft.evaluate(spec, resume="yes"), ValueError, "`resume` must be True or False"),
        (lambda spec: ft.evaluate(spec, fresh=1), ValueError, "`fresh` must be True or False"),
        (lambda spec: ft.evaluate(spec, fresh=True, resume=True), ValueError, "give one of them"),
        (lambda spec: ft.evaluate(spec, resume=True), FileNotFoundError, "nothing to go on with; leave out `resume`"),
        (lambda spec: ft.evaluate(spec | {"output": "rivals.jsonl"}), ValueError, "results cannot be written to"),
        (lambda spec: ft.evaluate(spec | {"output": "repo"}), FileExistsError, "holds no evaluation; name another"),
        (lambda spec: ft.evaluate(spec, on_event=3), TypeError, "`on_event` must be a callable"),
        (lambda spec: ft.evaluate(spec, proposer="x"), TypeError, "`proposer` must be a callable"),
        (lambda spec: ft.evaluate(spec, proposer=print), ValueError, "spec: `search` is missing"),
        (lambda spec: ft.evaluate(spec, on_evnt=print), TypeError, "did you mean 'on_event'"),
    ],
)
def test_wrong_arguments_are_named(project, call, error, words):
    """CA-4"""
    with pytest.raises(error, match=words):
        call(project.spec())


def test_a_baseline_that_cannot_be_compared_with_is_the_engines_error(project):
    """CA-5, CA-52"""
    with pytest.raises(ft.EngineError, match="baseline unusable"):
        ft.evaluate(project.spec(tests=[{"command": "sleep 60", "timeout": "100ms"}]))


# -- going on


def test_results_that_are_there_are_not_overwritten(project):
    """CA-96"""
    report = ft.evaluate(project.spec())
    with pytest.raises(FileExistsError, match="resume=True"):
        ft.evaluate(project.spec())
    again = ft.evaluate(project.spec(), resume=True)
    assert lasting(again) == lasting(report) and again.to_dict()["costs"]["processes"] == 0
    with pytest.raises(ValueError, match=r"has changed since it began: .*`tests\[0\]\.command`"):
        ft.evaluate(project.spec(tests=[{"command": "true"}]), resume=True)
    fresh = ft.evaluate(project.spec(tests=[{"command": "true"}]), fresh=True)
    was_wrong = {one.name: one.is_correct for one in fresh.evaluations}["wrong"]
    assert was_wrong, "the tests that it failed are not asked any more"


def test_a_base_that_could_not_be_used_is_tested_again(project):
    """CA-96"""
    with pytest.raises(ft.EngineError, match="baseline unusable"):
        ft.evaluate(project.spec(tests=[{"command": ["no-such-program"]}]))
    with pytest.raises(ft.EngineError, match=r"^bench\[0\]\.command: baseline unusable: .*; mend it"):
        ft.evaluate(project.spec(bench=[{"command": "exit 3"}]))
    assert ft.evaluate(project.spec()).evaluations


# -- events


def test_every_event_is_told_in_order_in_the_calling_thread(project):
    """CA-93"""
    told, threads = [], set()

    def observe(event):
        threads.add(threading.get_ident())
        told.append(event)

    report = ft.evaluate(project.spec(), on_event=observe)
    assert threads == {threading.get_ident()}
    names = [event["event"] for event in told]
    assert (names[0], names[-1], names.count("baseline")) == ("snapshot", "done", 3)
    assert json.loads(json.dumps(told)) == told and told[-1] == {"event": "done", "winner": None}
    states = {}
    for event in told:
        if event["event"] == "candidate":
            states.setdefault(event["name"], []).append(event["state"])
    assert states["shorter"][0] == "waiting" and states["shorter"][-1] in ("correct", "done")
    assert states["wrong"][-1] == "failed" and states["again"] == ["duplicate"]
    assert told[0]["hash"] == report.to_dict()["base"]["hash"]


def test_an_observer_that_raises_changes_nothing(project, caplog):
    """CA-93"""

    def observe(event):
        raise SystemExit("not now") if event["event"] == "done" else ValueError("no idea")

    told = []
    expected = ft.evaluate(project.spec(), on_event=told.append)
    with caplog.at_level(logging.ERROR, "fairtrial"):
        report = ft.evaluate(project.spec(output="again"), on_event=observe)
    assert lasting(report, "spec") == lasting(expected, "spec")
    assert len(caplog.records) == len(told) and "`on_event` failed on snapshot" in caplog.text


def test_an_observer_that_is_slow_changes_nothing(project):
    """CA-93: here the first event is not done with before the evaluation is, and the rest comes nevertheless"""
    told = []
    report_file = project.directory / "results" / "evaluation.json"

    def observe(event):
        wait_until(report_file.exists, what="the report, while the observer waits,")
        told.append(event["event"])

    assert len(ft.evaluate(project.spec(), on_event=observe).evaluations) == 5
    assert (told[0], told[-1]) == ("snapshot", "done")
