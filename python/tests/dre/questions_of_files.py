"""Questions about study files and plans: nothing is run, or nothing should be."""

import json

from side import Dre, study
from weaknesses import question

NOTHING = "def body(factors, seed): return {'output': {'v': 1}}"


def refused(done, *words):
    """Whether a file was refused by a message, not by a backtrace, that has these words."""
    said = done.stdout + done.stderr
    return done.returncode != 0 and "Traceback" not in said and all(word in said for word in words)


def verdict(done):
    if "Traceback" in done.stderr:
        return "a backtrace that ends in `%s`" % done.stderr.strip().splitlines()[-1][:80]
    said = (done.stderr + done.stdout).strip().splitlines()
    return "exit code %d, `%s`" % (done.returncode, said[-1][:110] if said else "")


@question("ST-2")
def an_agent_without_a_binding(side):
    """An agent that nothing is bound to is refused before anything runs."""
    done = side.run(study().replace("agent_specs: [a]", "agent_specs: [a, missing]"), NOTHING)
    return done.returncode != 0 and not side.out.exists(), "%d runs were made" % len(side.table())


@question("ST-9")
def seeds_of_a_large_plan(side):
    """The seeds of 13,537 runs are all different."""
    text = study(levels=(1,), replicates=13537, study_id="s0")
    side.write(text, NOTHING)
    if isinstance(side, Dre):
        script = (
            "from design_research_experiments import Study, build_design\n"
            "s = Study.from_yaml('study.yaml')\n"
            "c = build_design(s)[0].condition_id\n"
            "n = s.run_budget.replicates\n"
            "print(len({s.seed_policy.derive_seed('s0', c, r + 1, 'a:p') for r in range(n)}))"
        )
        distinct = int(side.call(side.python, "-c", script).stdout)
    else:
        plan = json.loads(side.command("plan", "study.yaml", "--json").stdout)
        distinct = len({run["seed64"] for run in plan["runs"]})
    return distinct == 13537, "%d of 13,537 differ" % distinct


@question("ST-18")
def two_faults(side):
    """Every fault of a file is named, without a backtrace."""
    done = side.validate(study(budget=", replicate: 3").replace("title: T", "title: ''"))
    return refused(done, "replicate", "title"), verdict(done)


@question("ST-19")
def an_unknown_key(side):
    """A misspelt key is refused, and named."""
    done = side.validate(study(more="constraint: []\n"))
    return refused(done, "constraint"), verdict(done)


@question("ST-19")
def a_string_for_a_list(side):
    """A text where a list belongs is refused, and not split into its letters."""
    done = side.validate(study(more="tags: abc\n"))
    return refused(done, "tags"), verdict(done)


@question("ST-19")
def a_string_for_a_boolean(side):
    """`randomize: "false"` is refused, and not taken for true."""
    done = side.validate(study(more="design_spec: {randomize: 'false'}\n"))
    return refused(done, "randomize"), verdict(done)


@question("ST-20")
def equal_levels(side):
    """Two levels of one value are refused: their runs would have the same ids."""
    done = side.run(study(levels=(1, 2)).replace("value: 2", "value: 1"), NOTHING)
    ids = side.column("run_id")
    return refused(done) and not ids, "%d rows in runs.csv, %d ids" % (len(ids), len(set(ids)))


@question("ST-20")
def a_repeated_agent(side):
    """An agent that is listed twice is refused."""
    done = side.run(study().replace("agent_specs: [a]", "agent_specs: [a, a]"), NOTHING)
    ids = side.column("run_id")
    return refused(done) and not ids, "%d rows in runs.csv, %d ids" % (len(ids), len(set(ids)))


@question("ST-20")
def a_repeated_key(side):
    """A key that is given twice is refused."""
    done = side.validate(study(more="title: Another\n"))
    return refused(done, "title"), verdict(done)


@question("ST-20")
def a_factor_named_as_a_column(side):
    """A factor that would overwrite a column of the tables is refused."""
    done = side.run(study().replace("name: x", "name: condition_id"), NOTHING)
    ids = side.column("condition_id", "conditions")
    return refused(done, "condition_id") and not ids, "conditions.csv has the ids %s" % ids


@question("ST-21")
def an_option_without_effect(side):
    """An option that the kind of design ignores is refused."""
    done = side.validate(study(more="design_spec: {kind: full_factorial, replicates: 5}\n"))
    return refused(done, "replicates"), verdict(done)


@question("ST-22")
def a_doubtful_scalar(side):
    """A level that YAML 1.1 and 1.2 read differently is pointed out."""
    done = side.validate(study(levels=("no", "maybe")))
    words = [row for row in (done.stdout + done.stderr).splitlines() if "`no`" in row]
    return words, "`%s`" % words[0][:110] if words else verdict(done)


@question("ST-23")
def a_constraint_that_cannot_be_computed(side):
    """The message names the constraint, and is no backtrace."""
    faulty = "constraints: [{constraint_id: c1, description: d, expression: \"x < 'a'\"}]\n"
    side.write(study(more=faulty), NOTHING)
    verb = ["materialize-design", "study.yaml"] if isinstance(side, Dre) else ["plan", "study.yaml"]
    done = side.command(*verb)
    return refused(done, "c1"), verdict(done)


@question("ST-27")
def what_would_run(side):
    """A dry run says how many conditions and runs there are."""
    side.write(study(levels=(1, 2, 3), replicates=7), NOTHING)
    verb = ["run-study", "study.yaml", "--dry-run"] if isinstance(side, Dre) else ["plan", "study.yaml"]
    done = side.command(*verb)
    said = " / ".join(done.stdout.splitlines()[:2])
    return "21 runs" in said and "3 conditions" in said, "`%s`" % said


@question("ST-31")
def a_plan_above_the_budget(side):
    """A plan larger than `max_runs` is refused, or sampled so that no condition is left out."""
    done = side.run(study(levels=(1, 2), replicates=3, budget=", max_runs: 3"), NOTHING)
    counts = [side.column("condition_id").count(name) for name in side.column("condition_id", "conditions")]
    return refused(done, "max_runs") and not counts, "runs per condition: %s" % (counts or "none, exit code 2")


@question("ST-32")
def the_conditions_of_a_plan(side):
    """The conditions that a plan writes are those that a run writes."""
    side.run(study(), NOTHING)
    if isinstance(side, Dre):
        side.command("materialize-design", "study.yaml", "--output", "planned.csv")
    else:
        side.command("plan", "study.yaml", "--conditions", "planned.csv")
    planned, written = (side.folder / "planned.csv").read_bytes(), (side.out / "conditions.csv").read_bytes()
    return planned == written, "%d and %d columns" % tuple(
        len(b.splitlines()[0].split(b",")) for b in (planned, written)
    )


@question("SF-62 g")
def blocks_shuffled_apart(side):
    """Two blocks of equal size are shuffled differently."""
    factors = json.dumps({"b": [0, 1], "i": list(range(8))})
    options = ["--block-randomization-key", "b", "--out", "design.csv"]
    if isinstance(side, Dre):
        side.command("generate-doe", "--kind", "full", "--factors-json", factors, *options)
    else:
        side.command("design", "full", "--factors", factors, *options)
    rows = [row.split(",") for row in (side.folder / "design.csv").read_text().split()[1:]]
    first, second = ([i for b, i in rows if b == block] for block in "01")
    return len(first) == 8 and first != second, "%s and %s" % ("".join(first), "".join(second))
