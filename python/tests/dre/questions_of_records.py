"""Questions about what is kept: directories, resumes, tables, bundles."""

from side import JUDGED, Dre, study, wait_for
from weaknesses import question

FINE = "def body(factors, seed):\n    note('calls')\n    return {'output': {'v': 'fine'}}\n"


def kept(side):
    """All files but the locks and logs of a database that was only looked at."""
    return {name: data for name, data in side.files().items() if not name.endswith(("-wal", "-shm", ".lock"))}


@question("ST-57")
def tables_made_again(side):
    """Tables that were lost are made again as they were."""
    side.run(study(replicates=3), FINE)
    names = ["runs.csv", "events.csv", "conditions.csv", "evaluations.csv"]
    before = {name: (side.out / name).read_bytes() for name in names}
    for name in names:
        (side.out / name).unlink()
    verb = ["export-analysis", "study.yaml", "--output-dir", "out"] if isinstance(side, Dre) else ["export", "out"]
    side.command(*verb)
    changed = [name for name in names if (side.out / name).read_bytes() != before[name]]
    return not changed, "changed: %s" % (", ".join(changed) or "nothing")


WAITS = """
def body(factors, seed):
    note(os.environ["QUESTION"])
    wait(lambda: os.environ["QUESTION"] == "second")
    return {"output": {}}
"""


@question("ST-63")
def two_at_a_time(side):
    """A second writer of one directory is refused."""
    side.write(study(), WAITS)
    with side.running(question="first"):
        wait_for(lambda: side.notes("first"))
        second = side.run(resume=True, question="second")
    ran = len(side.notes("second"))
    return second.returncode == 2 and ran == 0, "the second ran %d runs, exit code %d" % (ran, second.returncode)


@question("ST-64")
def a_directory_that_holds_a_study(side):
    """Running into it again is refused, and changes nothing."""
    side.run(study(), FINE)
    before = kept(side)
    again = side.run()
    calls = len(side.notes("calls"))
    return again.returncode == 2 and calls == 2 and kept(side) == before, "%d runs were run again" % (calls - 2)


@question("ST-67")
def a_changed_agent(side):
    """A resume after the agent was changed does not pass old results for new ones."""
    side.run(study(), FINE)
    done = side.run(study(), FINE.replace("'fine'", "'better'"), resume=True)
    said = (done.stdout + done.stderr).strip().splitlines()[-1][:100]
    return done.returncode == 2 and "agent changed" in said, "exit code %d, `%s`" % (done.returncode, said)


@question("ST-67")
def a_changed_seed(side):
    """A resume after `base_seed` was changed does not keep runs of the old one."""
    side.run(study(), FINE)
    done = side.run(study(more="seed_policy: {base_seed: 5}\n"), FINE, resume=True)
    said = (done.stdout + done.stderr).strip().splitlines()[-1][:100]
    return done.returncode == 2 and "seed changed" in said, "exit code %d, `%s`" % (done.returncode, said)


@question("ST-66")
def a_changed_evaluator(side):
    """A resume scores the kept outputs again, and runs no agent."""
    for number, resume in ((1, False), (2, True)):
        score = "def score(output): return {'s': %d}" % number
        side.run(study(levels=(1,), problem=JUDGED), FINE, score, resume=resume)
    return side.column("primary_outcome") == ["2"] and len(side.notes("calls")) == 1, "score %s, %d agent calls" % (
        side.column("primary_outcome")[0],
        len(side.notes("calls")),
    )


@question("ST-68")
def a_failed_run_is_tried_again(side):
    """A resume can run failed runs again."""
    body = "def body(*_):\n    if (HERE / 'broken').exists(): raise ValueError('no')\n    return {'output': {}}\n"
    (side.folder / "broken").touch()
    side.run(study(levels=(1,)), body)
    (side.folder / "broken").unlink()
    side.run(resume=True, more=[] if isinstance(side, Dre) else ["--retry", "failed"])
    return side.column("status") == ["success"], "afterwards %s" % side.column("status")


@question("ST-71")
def runs_no_longer_planned(side):
    """They are in no table."""
    side.run(study(levels=(1, 2, 3)), FINE)
    side.run(study(levels=(1, 2)), FINE, resume=True)
    return len(side.table()) == 2, "2 runs planned, %d rows" % len(side.table())


@question("ST-72")
def a_resume_with_nothing_to_do(side):
    """It leaves every file as it was."""
    side.run(study(replicates=3), FINE)
    before = kept(side)
    side.run(resume=True)
    after = kept(side)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return not changed, "changed: %s" % (", ".join(changed) or "nothing")


@question("ST-73")
def a_table_that_is_being_read(side):
    """A table is replaced as a whole: who reads the old one keeps it."""
    side.run(study(), FINE)
    before = (side.out / "runs.csv").read_bytes()
    with open(side.out / "runs.csv", "rb") as reader:
        side.run(study(replicates=2), FINE, resume=True)
        now = reader.read()
    replaced = len(side.table()) == 4
    return replaced and now == before, "the open file is %s" % ("the old one" if now == before else "another one")


@question("ST-76")
def the_order_of_rows(side):
    """Rows are in the same order at any number of workers and any delay."""
    slow = (
        "def body(factors, seed):\n    if factors['x'] == 1 and os.environ['QUESTION']: wait(lambda: notes('second'))\n"
    )
    slow += "    if factors['x'] == 2: note('second')\n    return {'output': {}}\n"
    side.run(study(), slow)
    alone = side.column("run_id")
    side.out.rename(side.folder / "kept")
    (side.folder / "second").unlink()
    side.run(jobs=2, question="delayed")
    together = side.column("run_id")
    return len(alone) == 2 and together == alone, "the %s order" % ("same" if together == alone else "other")


@question("ST-78")
def an_edited_table(side):
    """What checks a directory finds a value that was edited."""
    side.run(study(), FINE)
    table = side.out / "runs.csv"
    table.write_bytes(table.read_bytes().replace(b"success", b"failed", 1))
    if isinstance(side, Dre):
        check = "from design_research_experiments.artifacts import validate_canonical_artifacts as v; v('out')"
        done = side.call(side.python, "-c", check)
    else:
        done = side.command("verify", "out")
    return done.returncode == 3 and "runs.csv" in done.stdout, "exit code %d" % done.returncode


def bundle(side, name):
    return side.command("bundle-results" if isinstance(side, Dre) else "bundle", name)


@question("ST-80")
def a_bundle_of_a_name_with_a_dot(side):
    """The bundle of `out.v2` is not named as that of `out`."""
    side.run(study(), FINE)
    side.out.rename(side.folder / "out.v2")
    bundle(side, "out.v2")
    made = sorted(path.name for path in side.folder.glob("*.tar.gz"))
    return made == ["out.v2.tar.gz"], "made %s" % ", ".join(made)


@question("ST-80")
def a_bundle_of_nothing(side):
    """A directory that is missing leaves no bundle."""
    done = bundle(side, "missing")
    made = [path.name for path in side.folder.glob("*.tar.gz")]
    return done.returncode == 2 and not made, "exit code %d, made %s" % (done.returncode, ", ".join(made) or "nothing")


@question("ST-84")
def a_checkpoint_cut_short(side):
    """A directory of DRE's with an empty checkpoint is finished."""
    place = side.out / "artifacts" / "checkpoints"
    place.mkdir(parents=True)
    (place / "run-000000000000.json").touch()
    done = side.run(study(), FINE, resume=True)
    return len(side.table()) == 2, "%d of 2 runs in the tables, exit code %d" % (len(side.table()), done.returncode)
