"""Questions about single runs: what an agent gives, what is done about it, and what an agent can do to others."""

import signal

from side import JUDGED, Dre, study, wait_for
from weaknesses import question


def statuses(side):
    return "%s" % (side.column("status") or "no runs.csv")


@question("ST-8")
def an_agent_that_raises_a_type_error(side):
    """It is called once, and its own error is kept."""
    side.write(study(levels=(1,)), "def go(*given):\n    note('calls')\n    raise TypeError('mine')\n")
    (side.folder / "agent.py").write_text((side.folder / "agent.py").read_text().replace(side.AGENT, ""))
    side.run()
    calls, error = len(side.notes("calls")), side.column("error_info")
    return calls == 1 and "mine" in error[0], "%d calls, error %s" % (calls, error)


@question("ST-8")
def an_async_agent(side):
    """A coroutine is awaited."""
    side.run(
        study(levels=(1,)), "async def answer(): return {'output': {'v': 'awaited'}}\nbody = lambda *_: answer()\n"
    )
    return side.holds("awaited") and not side.holds("coroutine object"), statuses(side)


@question("ST-11")
def an_agent_that_says_it_failed(side):
    """`ok: false` makes the run failed."""
    side.run(study(levels=(1,)), "def body(*_): return {'ok': False, 'error': 'no luck', 'output': {}}")
    return side.column("status") == ["failed"] and side.holds("no luck"), statuses(side)


@question("ST-12")
def an_agent_that_gives_an_object(side):
    """It is a bad result; no address gets into a table."""
    side.run(study(levels=(1,)), "def body(*_): return object()")
    return side.column("status") == ["failed"] and not side.holds("object at 0x"), statuses(side)


@question("ST-12")
def an_answer_under_an_unknown_key(side):
    """It is not lost without a word."""
    side.run(study(levels=(1,)), "def body(*_): return {'answer': 'forty-two'}")
    return "answer" in "".join(side.column("error_info")), "%s, error %s" % (statuses(side), side.column("error_info"))


@question("ST-13")
def a_malformed_cost(side):
    """A fault in an optional part does not fail the run."""
    side.run(study(levels=(1,)), "def body(*_): return {'output': {'v': 1}, 'metrics': {'cost_usd': 'n/a'}}")
    return side.column("status") == ["success"], statuses(side)


@question("ST-14")
def an_evaluator_that_gives_a_number(side):
    """A number is the score."""
    body, score = "def body(*_): return {'output': {'v': 1}}", "def score(output): return 0.625"
    side.run(study(levels=(1,), problem=JUDGED), body, score)
    return side.column("primary_outcome") == ["0.625"], "primary_outcome %s" % side.column("primary_outcome")


@question("ST-16")
def a_metric_under_a_measured_name(side):
    """What an agent reports as `latency_s` is kept, and is not the measurement."""
    side.run(study(levels=(1,)), "def body(*_): return {'output': {'v': 1}, 'metrics': {'latency_s': 98765.25}}")
    kept, measured = side.holds("98765.25"), side.column("latency_s") != ["98765.25"]
    return kept and measured, "reported value %s" % ("kept" if kept else "gone")


@question("ST-17")
def an_agent_that_changes_its_condition(side):
    """Tables and other runs stay as they were."""
    side.run(study(), "def body(factors, seed):\n    factors['x'] = 99\n    return {'output': {'v': 1}}\n")
    return side.column("x", "conditions") == ["1", "2"], "conditions.csv has x %s" % side.column("x", "conditions")


@question("ST-34")
def the_order_of_runs(side):
    """By default no condition has its second replicate before all had their first."""
    side.run(
        study(levels=(1, 2, 3), replicates=3),
        "def body(factors, seed):\n    note('order', factors['x'])\n    return {'output': {}}",
    )
    order = side.notes("order")
    return sorted(order[:3]) == ["1", "2", "3"], "the levels of x ran as %s" % " ".join(order)


DRAWS = """
def body(factors, seed):
    first = random.random()
    time.sleep(0.05)
    note(os.environ["QUESTION"], "%s %s %s" % (seed, first, random.random()))
    return {"output": {"v": 1}}
"""


@question("ST-38")
def draws_in_parallel(side):
    """A run draws the same random numbers at any number of workers."""
    side.run(study(replicates=4), DRAWS, question="one")
    for path in (side.out, *side.out.parent.glob("out-*")):
        path.rename(path.with_name("kept"))
    side.run(jobs=4, question="four")
    one, four = (set(side.notes(name)) for name in ("one", "four"))
    return len(one) == 8 and one == four, "%d of %d runs drew the same" % (len(one & four), len(one))


def survivors(side, sin):
    side.run(
        study(levels=(1, 2, 3)),
        "def body(factors, seed):\n    if factors['x'] == 2: %s\n    return {'output': {}}" % sin,
    )
    return side.column("status").count("success")


@question("ST-40")
def an_agent_that_calls_sys_exit(side):
    """It costs its own run and nothing else."""
    others = survivors(side, "sys.exit(0)")
    return others == 2, "%d of 2 other runs in the tables" % others


@question("ST-40")
def an_agent_that_ends_its_process(side):
    """It costs its own run and nothing else."""
    others = survivors(side, "os._exit(0)")
    return others == 2, "%d of 2 other runs in the tables" % others


@question("ST-40")
def an_agent_that_changes_its_directory(side):
    """Results are where they belong."""
    (side.folder / "away").mkdir()
    side.run(study(), "def body(*_):\n    os.chdir(HERE / 'away')\n    return {'output': {}}")
    rows, strays = len(side.table()), len(list((side.folder / "away").rglob("*.csv")))
    return rows == 2 and not strays, "%d rows in place, %d tables astray" % (rows, strays)


@question("ST-41")
def the_clock(side):
    """Times have more than whole seconds."""
    side.run(study(levels=(1,)), "def body(*_): return {'output': {}}")
    started = side.column("start_time")
    return "." in started[0], "a run began at %s" % started[0]


# One run fails when three others run; those are then in the middle of their work, until that failure is recorded.
FAILS_BESIDE_OTHERS = """
def body(factors, seed):
    note("started", factors["x"])
    if factors["x"] == 1:
        wait(lambda: len(notes("started")) == 4)
        raise RuntimeError("first")
    wait(lambda: list((HERE / "out" / "artifacts" / "checkpoints").glob("*.json")))
    note("finished", factors["x"])
    return {"output": {"v": 1}}
"""


def failing_fast(side):
    side.run(study(levels=(1, 2, 3, 4), budget=", fail_fast: true"), FAILS_BESIDE_OTHERS, jobs=4)
    return len(side.notes("started")), len(side.notes("finished"))


@question("ST-45")
def every_start_has_an_end(side):
    """After a stop at the first failure, as many ends are recorded as there were starts."""
    started, _ = failing_fast(side)
    return started == side.recorded() == 4, "%d starts, %d recorded ends" % (started, side.recorded())


@question("ST-52")
def a_stop_ends_what_runs(side):
    """At the first failure of a study that stops there, other runs are stopped too."""
    started, finished = failing_fast(side)
    return started == 4 and finished == 0, "%d of 3 others ran to their end" % finished


@question("ST-46")
def what_a_failed_run_leaves(side):
    """Its traceback and what it printed are kept."""
    deep = "def deep_inside():\n    print('a word ' + 'on the way')\n    raise ValueError('no')\n"
    side.run(study(levels=(1,)), deep + "def body(*_): deep_inside()")
    wanted = {"traceback": "in deep_inside", "output": "a word on the way"}
    kept = [name for name, text in wanted.items() if side.holds(text)]
    return len(kept) == 2, "kept: %s" % (", ".join(kept) or "neither")


@question("ST-47")
def an_evaluator_that_raises(side):
    """The agent's output and tokens stay, and the run a success."""
    body = "def body(*_): return {'output': {'v': 'precious'}, 'metrics': {'input_tokens': 7}}"
    side.run(study(levels=(1,), problem=JUDGED), body, "def score(output): 1 / 0")
    kept, (status,), (tokens,) = side.holds("precious"), side.column("status"), side.column("input_tokens")
    seen = "%s, output %s, tokens %s" % (status, "kept" if kept else "gone", tokens)
    return kept and status == "success" and float(tokens) == 7, seen


CIRCLES = """
def body(factors, seed):
    circle = []
    circle.append(circle)
    return {'output': {'v': circle if factors['x'] == 1 else 'fine'}}
"""


@question("ST-48")
def a_result_that_cannot_be_stored(side):
    """It fails its run, not the study."""
    done = side.run(study(), CIRCLES)
    ended = sorted(side.column("status"))
    return ended == ["failed", "success"], "%s, exit code %d" % (ended or "no tables", done.returncode)


@question("ST-53")
def the_exit_code_of_failed_runs(side):
    """It is not 0."""
    side.write(study(), "def body(*_): raise ValueError('no')")
    # DRE's own command finds no function for the agent, so that every run fails.
    verb = ["run-study", "study.yaml"] if isinstance(side, Dre) else ["run", "study.yaml"]
    done = side.command(*verb)
    return done.returncode not in (0, 1, 2), "exit code %d" % done.returncode


@question("ST-54")
def an_interrupt(side):
    """After SIGINT no run starts, and every start has a recorded end."""
    side.write(
        study(replicates=10), "def body(*_):\n    note('started')\n    time.sleep(0.2)\n    return {'output': {}}"
    )
    with side.running(jobs=2) as process:
        wait_for(lambda: len(side.notes("started")) >= 3)
        process.send_signal(signal.SIGINT)
        process.wait(60)
    started = len(side.notes("started"))
    return started < 20 and side.recorded() >= started, "%d of 20 runs were started, %d recorded" % (
        started,
        side.recorded(),
    )
