"""DRE reads what Fairtrial wrote, and each goes on where the other stopped."""

import contextlib
import csv
import json
import shutil
import signal
import sqlite3

import golden
import pytest
from two_sides import LIMIT_S, wait_until

ACCEPT = """
import json, sys
from design_research_experiments.study import load_study, validate_study
from design_research_experiments.artifacts import load_checkpointed_run_results, validate_canonical_artifacts
validate_canonical_artifacts(sys.argv[1])
study = load_study(sys.argv[1] + "/study.yaml")
runs = load_checkpointed_run_results(sys.argv[1])
print(json.dumps({"errors": validate_study(study), "runs": {name: run.status for name, run in runs.items()}}))
"""


def test_dre_accepts_what_fairtrial_wrote(sides):
    """SF-58, ST-85: its validator, its loader, its export, and a resume that runs nothing."""
    golden.write(sides)
    sides.fairtrial("run", "study.yaml", "--compat", "dre-0.2", expect=3)
    sides.dre("study.yaml", "theirs")
    assert sides.compare("theirs", "ours") == "equal"

    said = json.loads(sides.script(ACCEPT, "ours").stdout)
    assert said["errors"] == []
    assert sorted(said["runs"].values()) == ["failed"] * 6 + ["success"] * 6
    assert list(said["runs"]) == sorted(runs(sides, "ours"))

    tables = {name: shutil.copytree(sides.folder / name, sides.folder / f"{name}-again") for name in ("ours", "theirs")}
    for again in tables.values():
        remove_tables(again)
        sides.drexp("export-analysis", "study.yaml", "--output-dir", again)
    assert sides.compare("theirs-again", "ours-again") == "equal"
    same_rows(sides.folder / "ours", sides.folder / "ours-again")

    before = checkpoints(sides, "ours")
    resumed = sides.drexp("resume-study", "study.yaml")
    assert "now has 12 total runs" in resumed.stdout
    assert checkpoints(sides, "ours") == before


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_fairtrial_finishes_what_dre_began(sides, jobs):
    """ST-84, SF-5: DRE is interrupted half-way; the tables equal those of a whole run of DRE's."""
    golden.write(sides)
    sides.dre("study.yaml", "whole")
    middle = runs(sides, "whole")[6]
    interrupted = sides.dre("study.yaml", "ours", expect=None, env={"INTERRUPT_AT": middle})
    assert "KeyboardInterrupt" in interrupted.stderr
    begun = checkpoints(sides, "ours")
    assert 0 < len(begun) < golden.RUNS
    done = sides.fairtrial("run", "study.yaml", "--resume", "-j", jobs, expect=3)
    assert f"{golden.RUNS - len(begun) + 1} run now, {len(begun) - 1} taken from the record" in done.stdout
    assert sides.compare("whole", "ours") == "equal"
    after = checkpoints(sides, "ours")
    assert {name: after[name] for name in begun if name != "runs.jsonl"} == without_ledger(begun)


@pytest.mark.parametrize("compat", ["native", "dre-0.2"])
def test_dre_finishes_what_fairtrial_began(sides, compat):
    """ST-85: a stopped study is exported, and DRE resumes exactly the rest."""
    golden.write(sides)
    sides.dre("study.yaml", "whole")
    waits = {"WAIT_AT": runs(sides, "whole")[6]}
    sides.write("plan-order.yaml", (sides.folder / "study.yaml").read_text() + "order: {policy: plan}\n")
    with sides.start("run", "plan-order.yaml", "--compat", compat, "-j", "1", env=waits) as study:
        wait_until(lambda: ended(sides, "ours") == 6, "the run in the middle waits")
        study.send_signal(signal.SIGINT)
        assert study.wait(LIMIT_S) == 130
    sides.fairtrial("export", "ours", "--format", "dre")
    begun = checkpoints(sides, "ours")
    assert len(without_ledger(begun)) == 6
    ledger = len(begun["runs.jsonl"].splitlines())
    sides.dre("study.yaml", "ours", "--resume")
    after = checkpoints(sides, "ours")
    assert {name: after[name] for name in without_ledger(begun)} == without_ledger(begun)
    assert len(after["runs.jsonl"].splitlines()) - ledger == golden.RUNS - 6
    assert sorted(runs(sides, "ours")) == sorted(runs(sides, "whole"))


# -- looking at directories


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def runs(sides, out):
    return [row["run_id"] for row in rows(sides.folder / out / "runs.csv")]


def ended(sides, out):
    journal = sides.folder / out / "journal.sqlite"
    if not journal.exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'finishes'").fetchone():
            return 0
        return database.execute("SELECT count(*) FROM finishes").fetchone()[0]


def checkpoints(sides, out):
    folder = sides.folder / out / "artifacts" / "checkpoints"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def without_ledger(found):
    return {name: data for name, data in found.items() if name != "runs.jsonl"}


def remove_tables(directory):
    for path in [*directory.glob("*.csv"), *directory.glob("*.json"), directory / "study.yaml"]:
        path.unlink()


def same_rows(ours, again):
    """Rows as sets; DRE's second export has other JSON spacing in `meta_json`, and other directories (SF-5)."""

    def plain(row):
        parsed = {name: json.loads(row[name]) for name in ("meta_json", "notes_json") if name in row}
        return repr(sorted({**row, **parsed, "manifest_path": ""}.items(), key=lambda pair: pair[0]))

    for name in ("conditions.csv", "runs.csv", "events.csv", "evaluations.csv"):
        first, second = (sorted(map(plain, rows(side / name))) for side in (ours, again))
        assert first == second, name
        assert first, name
