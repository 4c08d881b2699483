"""Studies from Python: ST-87 and ST-88, and what of the study's contracts is about a host's functions."""

import csv
import os
import random
import signal
import subprocess
import threading
import warnings

import pytest
from support import WAIT_S, binary, wait_until

import fairtrial as ft

STUDY = """
study_id: host
title: Bound by a program
factors: {x: [1, 2]}
agent_specs: [a]
problem_ids: [p]
"""
ALONE = "study_id: alone\ntitle: Conditions by themselves\nfactors: {x: [1, 2, 3]}\n"
PROBLEM = {"brief": "a sum", "payload": {"numbers": [1, 2]}}


@pytest.fixture
def study(tmp_path):
    """Writes a study file."""

    def write(text=STUDY, name="study.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def perform(study, tmp_path):
    """Runs a study whose one agent and problem are the test's."""

    def run(agent, text=STUDY, problem=PROBLEM, **options):
        options = {"output_dir": tmp_path / "results", "parallelism": 2} | options
        return ft.run_study(study(text), agents={"a": agent}, problems={"p": problem}, **options)

    return run


def doubled(run):
    return {"output": {"y": 2 * run["condition"]["factors"]["x"]}}


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


# -- loading and planning


def test_a_study_is_loaded_and_planned_without_starting_anything(study, tmp_path):
    """ST-87: the bindings that a file leaves to its host are given to `plan` as to `run_study`"""
    loaded = ft.Study.load(study())
    assert (loaded.study_id, loaded.compat, loaded.definition["title"]) == ("host", "native", "Bound by a program")
    plan = loaded.plan(agents={"a": doubled}, problems={"p": PROBLEM})
    assert plan.counts == {"conditions": 2, "admissible": 2, "runs": 2} and len(plan) == 2
    assert [run["factors"] for run in plan.runs] == [{"x": 1}, {"x": 2}]
    assert [condition["factors"]["x"] for condition in plan.conditions] == [1, 2]
    assert plan.runs[-1]["run_id"] == plan.runs[1]["run_id"] and plan.runs[0]["index"] == 0
    assert plan.digest_runs == loaded.plan().digest_runs
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.yaml"]


def test_ids_are_those_of_the_bindings_where_the_file_names_none(study):
    """ST-2"""
    text = "study_id: s\ntitle: t\nfactors: {x: [1, 2]}\n"
    plan = ft.Study.load(study(text)).plan(agents={"b": doubled, "a": doubled}, problems={"p": {}, "q": {}})
    assert [(run["agent_id"], run["problem_id"]) for run in plan.runs[:4]] == [
        ("b", "p"),
        ("b", "q"),
        ("a", "p"),
        ("a", "q"),
    ]


def test_an_invalid_study_lists_all_that_is_wrong(study):
    """ST-88, ST-18"""
    path = study("study_id: s\ntitle: t\nfactor: {x: [1]}\nrun_budget: {replicates: 0}\n")
    with pytest.raises(ft.StudyError) as caught:
        ft.run_study(path)
    assert isinstance(caught.value, ValueError)
    assert [line.split(": ")[0] for line in caught.value.lines] == [f"{path}:3:1", f"{path}:4:26"]
    assert "did you mean `factors`?" in caught.value.lines[0]


def test_what_nobody_binds_and_unknown_options_of_bindings_are_refused(study, tmp_path):
    """ST-2, ST-19"""
    with pytest.raises(ft.StudyError, match="the agent `a` is not bound"):
        ft.run_study(study(), agents={"b": doubled}, problems={"p": {}}, output_dir=tmp_path / "results")
    with pytest.raises(ft.StudyError, match="did you mean `timeout`"):
        ft.run_study(study(), agents={"a": {"call": doubled, "timeuot": 3}}, problems={"p": {}})
    with pytest.raises(ft.StudyError, match="exclude each other"):
        ft.run_study(study(), agents={"a": doubled}, condition_runner=doubled)
    with pytest.raises(TypeError, match="did you mean 'agents'"):
        ft.run_study(study(), agent={"a": doubled})
    assert not (tmp_path / "results").exists()


# -- running


def test_records_come_in_plan_order_read_as_they_are_looked_at(perform, tmp_path):
    """ST-88"""
    runs = perform(doubled)
    assert (len(runs), runs.counts, runs.directory) == (2, {"success": 2}, tmp_path / "results")
    assert [run.outputs for run in runs] == [{"y": 2}, {"y": 4}]
    assert runs[-1] == runs[1] == runs[0:2][1] and runs[1].factors == {"x": 2}
    assert [run.run_id for run in reversed(runs)] == [runs[1].run_id, runs[0].run_id]
    with pytest.raises(IndexError):
        runs[2]
    assert [row["run_id"] for row in rows(runs.directory / "runs.csv")] == [run.run_id for run in runs]


def test_a_run_that_fails_raises_nothing(perform):
    """ST-88"""

    def agent(run):
        if run["condition"]["factors"]["x"] == 2:
            raise KeyError("no such thing")
        return {"output": {}}

    runs = perform(agent)
    assert runs.counts == {"failed": 1, "success": 1}
    assert (runs[1].status, runs[1].error) == ("failed", "KeyError: 'no such thing'")
    assert 'raise KeyError("no such thing")' in runs[1].outcome["error"]["traceback"]


def test_closures_lambdas_and_callable_objects_are_agents(perform):
    """ST-87"""
    factor = 5

    class Agent:
        def __call__(self, run):
            return {"output": {"y": factor * run["condition"]["factors"]["x"]}}

    def closure(run):
        return {"output": {"y": factor * run["condition"]["factors"]["x"]}}

    for agent in (closure, Agent(), lambda run: closure(run)):
        assert [run.outputs["y"] for run in perform(agent, fresh=True)] == [5, 10]


def test_functions_of_main_need_no_guard(study, program):
    """ST-87"""
    ended = program(
        f"""
        import fairtrial as ft

        factor = 3

        def agent(run):
            return {{"output": {{"y": factor * run["condition"]["factors"]["x"]}}}}

        runs = ft.run_study({str(study())!r}, agents={{"a": agent}}, problems={{"p": {{}}}}, output_dir="out")
        print([run.outputs["y"] for run in runs])
        """
    )
    assert (ended.stdout, ended.stderr) == ("[3, 6]\n", "")


def test_what_cannot_be_pickled_is_named_before_anything_starts(perform, tmp_path):
    """ST-87"""
    lock = threading.Lock()

    def locked(run):
        return {"output": {"lock": lock.locked()}}

    with pytest.raises(TypeError, match=r"agent `a`: `.*locked` cannot be pickled: .*lock"):
        perform(locked)
    with pytest.raises(TypeError, match="evaluator of problem `p`"):
        perform(doubled, problem={"evaluator": locked})
    with pytest.raises(TypeError, match=r"problem `p` must be plain data: .*payload"):
        perform(doubled, problem={"payload": {"lock": lock}})
    with pytest.raises(TypeError, match=r"`problems.p.payload.s` is a set"):
        perform(doubled, problem={"payload": {"s": {1}}})
    with pytest.raises(TypeError, match="agent `a` must be a callable"):
        perform(3)
    assert not (tmp_path / "results").exists()


def test_an_agent_gets_one_plain_dict_which_is_its_own(perform):
    """ST-8, ST-9, ST-17"""

    async def agent(*args, **kwargs):
        (run,) = args
        assert type(run) is dict and not kwargs
        run["condition"]["factors"]["x"] = 77
        return {"output": {"run": run}}

    big = {"payload": {"big": 2**80, "small": -(2**31), "text": "ä", "none": None, "float": 0.1, "list": [[], {}]}}
    runs = perform(agent, problem=big)
    given = runs[0].outputs["run"]
    assert given["problem"]["payload"] == big["payload"] and given["problem"]["problem_id"] == "p"
    assert (given["agent_id"], given["attempt"], given["schema"]) == ("a", 1, 1)
    assert given["seed"] == runs[0].seed and given["run_id"] == runs[0].run_id
    assert [run.factors["x"] for run in runs] == [1, 2]


def test_what_is_no_result_fails_its_run_by_name(perform):
    """ST-12"""
    for agent, named in (
        (lambda run: {"answer": 3}, "answer"),
        (lambda run: {"output": {"s": {1}}}, "output.s"),
        (lambda run: {"output": {"o": object()}}, "object"),
    ):
        runs = perform(agent, fresh=True)
        assert runs[0].status == "failed" and named in runs[0].error, runs[0].error


def test_an_evaluator_is_a_callable_too(perform):
    """ST-14"""

    def evaluator(given):
        return {"close": given["output"]["y"] / sum(given["run"]["problem"]["payload"]["numbers"]), "good": True}

    runs = perform(doubled, problem=PROBLEM | {"evaluator": evaluator})
    assert [(row["metric_name"], row["metric_value"]) for row in runs[1].evaluations] == [
        ("close", 4 / 3),
        ("good", True),
    ]
    assert runs[1].evaluation_status == "ok" and runs[1].metrics["primary_outcome"] == 4 / 3


def test_a_condition_runner_runs_conditions_without_problems(study, tmp_path):
    """ST-15"""
    seen = lambda run: {"output": {"problem": run["problem"], "agent": run["agent_id"]}}  # noqa: E731
    runs = ft.run_study(study(ALONE), condition_runner=seen, output_dir=tmp_path / "results")
    assert [run.outputs for run in runs] == [{"problem": None, "agent": None}] * 3


def test_a_binding_has_the_options_of_a_study_file(perform):
    """ST-4: and the file's `defaults` hold for the host's functions"""

    def sleep(run):
        import time

        time.sleep(60)

    runs = perform({"call": sleep, "timeout": "200ms", "retries": 1})
    assert runs.counts == {"timeout": 2} and runs[0].attempts == 2
    runs = perform(sleep, text=STUDY + "defaults: {timeout: 0.2}\n", fresh=True)
    assert runs.counts == {"timeout": 2} and runs[0].attempts == 1


def test_functions_are_isolated_as_the_binding_says(perform):
    """ST-40: a process for each run unless told otherwise"""

    def agent(run):
        return {"output": {"pid": os.getpid()}}

    text = STUDY + "run_budget: {replicates: 3}\n"
    pids = {run.outputs["pid"] for run in perform(agent, text, parallelism=1)}
    assert len(pids) == 6
    runs = perform({"call": agent, "isolation": "reuse"}, text, parallelism=1, fresh=True)
    assert len({run.outputs["pid"] for run in runs}) == 1


def test_programs_of_files_are_bound_beside_functions(study, tmp_path):
    """ST-3"""
    (tmp_path / "agent.py").write_text("def solve(run): return {'output': {'from': 'a file'}}\n")
    path = study(STUDY.replace("[a]", "[a, b, c]"))
    agents = {
        "a": lambda run: {"output": {"from": "a function"}},
        "b": "agent.py:solve",
        "c": {"command": ["sh", "-c", 'echo \'{"output": {"from": "a command"}}\'']},
    }
    runs = ft.run_study(path, agents, {"p": {}}, output_dir=tmp_path / "results")
    assert [run.outputs["from"] for run in runs[:3]] == ["a function", "a file", "a command"]


def test_draws_are_the_same_at_any_parallelism(perform):
    """ST-38"""

    def agent(run):
        import random

        return {"output": {"drawn": [random.random(), random.random()], "set": list({"a", "b", "c", "d"})}}

    text = STUDY + "run_budget: {replicates: 4}\n"
    drawn = [
        [run.outputs for run in perform({"call": agent, "isolation": isolation}, text, parallelism=width, fresh=True)]
        for isolation in ("fresh", "reuse")
        for width in (1, 4)
    ]
    assert all(one == drawn[0] for one in drawn)
    assert len({str(output["drawn"]) for output in drawn[0]}) == 8


def test_the_host_is_left_as_it_was(perform, monkeypatch):
    """ST-39"""

    def host():
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
        return random.getstate(), os.getcwd(), dict(os.environ), handlers

    def agent(run):
        import random

        random.seed(1)
        os.chdir("/")
        os.environ["CHANGED"] = "yes"
        return {"output": {"draw": random.random()}}

    random.seed(7)
    before = host()
    assert perform(agent).counts == {"success": 2}
    assert host() == before


def test_progress_is_told(perform, capsys):
    """ST-52 in Python: a function is told, or a line is written"""
    told = []
    perform(doubled, progress=told.append)
    assert [(now.planned, now.done, now.failed) for now in told] == [(2, 1, 0), (2, 2, 0)]
    perform(doubled, fresh=True, progress=True)
    assert "2/2 runs: 2 ok, 0 failed, 0 running" in capsys.readouterr().err


def test_tables_are_those_of_programs_in_files(study, tmp_path):
    """ST-88: but for times, and for what an agent is"""
    source = "def solve(run): return {'output': {'x': run['condition']['factors']['x'], 'seed': run['seed']}}\n"
    (tmp_path / "agent.py").write_text(source)
    names = {}
    exec(source, names)
    bound = "agents: {a: 'agent.py:solve'}\nproblems: {p: {family: f, payload: {n: 1}}}\n"
    by_file = ft.run_study(study(STUDY + bound), output_dir=tmp_path / "file")
    problems = {"p": {"family": "f", "payload": {"n": 1}}}
    by_host = ft.run_study(study(), {"a": names["solve"]}, problems, output_dir=tmp_path / "host")
    differs = {"start_time", "end_time", "identity", "manifest_path", "peak_rss_bytes"}

    def table(runs):
        return [
            {name: value for name, value in row.items() if name not in differs and not name.endswith("_s")}
            for row in rows(runs.directory / "runs.csv")
        ]

    assert table(by_file) == table(by_host)
    for name in ("conditions.csv", "evaluations.csv", "analysis_plan.json", "hypotheses.json"):
        assert (by_file.directory / name).read_bytes() == (by_host.directory / name).read_bytes(), name


# -- going on


def test_a_study_that_is_there_is_not_overwritten(perform):
    """ST-64"""
    perform(doubled)
    with pytest.raises(FileExistsError, match="resume=True"):
        perform(doubled)
    assert perform(doubled, resume=True).counts == {"success": 2}
    with pytest.raises(ValueError, match="exclude each other"):
        perform(doubled, resume=True, fresh=True)


def test_failed_runs_are_retried_on_request(perform, tmp_path):
    """ST-68"""
    allowed = tmp_path / "allowed"

    def agent(run):
        assert allowed.exists()
        return {"output": {}}

    assert perform(agent).counts == {"failed": 2}
    allowed.touch()
    assert perform(agent, resume=True).counts == {"failed": 2}
    assert perform(agent, resume=True, retry=["failed"]).counts == {"success": 2}
    with pytest.raises(ValueError, match="statuses are"):
        perform(agent, resume=True, retry=["bad"])


RESUMED = """
import sys, warnings
import fairtrial as ft, agents
warnings.simplefilter("error")
bound = {{"call": agents.agent, "version": sys.argv[2]}} if len(sys.argv) > 2 else agents.agent
try:
    runs = ft.run_study({study!r}, agents={{"a": bound}}, problems={{"p": {{}}}}, output_dir="out", resume=True,
                        changed=sys.argv[1])
    print([run.outputs["y"] for run in runs])
except ft.StudyError as error:
    print(error)
"""


def test_a_function_is_known_by_its_module_file_and_name(study, program, tmp_path):
    """ST-87, ST-65, ST-67"""
    module, text = tmp_path / "agents.py", RESUMED.format(study=str(study()))
    module.write_text("def agent(run): return {'output': {'y': 1}}\n")
    assert program(text, "refuse").stdout == "[1, 1]\n"
    assert program(text, "refuse").stdout == "[1, 1]\n"
    module.write_text("def agent(run): return {'output': {'y': 22}}\n")
    refused = program(text, "refuse")
    assert "2 finished runs would be run again: agent changed (2)" in refused.stdout, refused.stderr
    assert program(text, "rerun").stdout == "[22, 22]\n"
    module.write_text("def agent(run): return {'output': {'y': 333}}\n")
    assert program(text, "accept").stdout == "[22, 22]\n"


def test_a_version_stands_for_the_file(study, program, tmp_path):
    """ST-87"""
    module, text = tmp_path / "agents.py", RESUMED.format(study=str(study()))
    module.write_text("def agent(run): return {'output': {'y': 1}}\n")
    assert program(text, "refuse", "one").stdout == "[1, 1]\n"
    module.write_text("def agent(run): return {'output': {'y': 22}}\n")
    assert program(text, "refuse", "one").stdout == "[1, 1]\n"
    assert program(text, "rerun", "two").stdout == "[22, 22]\n"


def test_a_function_of_no_file_is_reused_with_a_warning(perform):
    """ST-87"""
    names = {"__name__": "typed"}
    exec("def agent(run): return {'output': {'y': 1}}", names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        perform(names["agent"])
    with pytest.warns(UserWarning, match="agent `a`: from no file and without `version`"):
        assert perform(names["agent"], resume=True).counts == {"success": 2}
    names["agent"].version = 3
    with pytest.raises(ft.StudyError, match="agent changed"):
        perform(names["agent"], resume=True)


INTERRUPTED = """
import os, pathlib, sys
import fairtrial as ft

def agent(run):
    import time
    if run["condition"]["factors"]["x"] == 2 and not os.path.exists("again"):
        pathlib.Path("begun").touch()
        time.sleep(60)
    return {{"output": {{}}}}

try:
    print(ft.run_study({study!r}, {{"a": agent}}, {{"p": {{}}}}, parallelism=1, output_dir="out",
                       resume=os.path.exists("again")).counts)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_is_raised_after_all_is_recorded(study, program, tmp_path):
    """ST-56: nothing new starts, what runs is cancelled and recorded, the tables are written"""
    text = INTERRUPTED.format(study=str(study(STUDY + "order: {policy: plan}\nrun_budget: {replicates: 2}\n")))
    process = program.start(text)
    wait_until((tmp_path / "begun").exists, what="the run's beginning")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert (out, err) == ("interrupted\n", "")
    assert [row["status"] for row in rows(tmp_path / "out" / "runs.csv")] == ["success", "success"]
    (tmp_path / "again").touch()
    assert program(text).stdout == "{'success': 4}\n"
    attempts = [row["status"] for row in rows(tmp_path / "out" / "attempts.csv")]
    attempts = sorted(attempts)
    if "skipped" in attempts:  # the fourth had begun to wait
        attempts.remove("skipped")
    assert attempts == ["cancelled"] + 4 * ["success"]


# -- as DRE does


def test_under_dre_functions_are_called_as_dre_calls_them(study, tmp_path):
    """SF-45, SF-46, SF-47, SF-48"""

    class Agent:
        def run(self, problem_packet, condition, seed):
            total = sum(problem_packet.payload["numbers"])
            return {"outputs": {"answer": total * condition.factor_assignments["x"]}, "metrics": {"seed": seed}}

    class Evaluator:
        def evaluate(self, answer):
            return {"metric_name": "answer", "value": answer}

    factors = "factors: [{name: x, levels: [{name: one, value: 1}, {name: two, value: 2}]}]"
    path = study("schema_version: 0.2.0" + STUDY.replace("factors: {x: [1, 2]}", factors))
    assert ft.Study.load(path).compat == "dre-0.2"
    problems = {"p": PROBLEM | {"problem_id": "p", "evaluator": Evaluator()}}
    runs = ft.run_study(path, {"a": Agent()}, problems, output_dir=tmp_path / "results")
    assert [run.outputs for run in runs] == [{"answer": 3}, {"answer": 6}]
    assert [run.evaluations[0]["metric_value"] for run in runs] == [3, 6]
    assert runs[0].metrics["seed"] == runs[0].seed
    factory = lambda chosen: Agent()  # noqa: E731
    runs = ft.run_study(path, {"a": factory}, problems, output_dir=tmp_path / "other")
    assert [run.outputs for run in runs] == [{"answer": 3}, {"answer": 6}]


def test_a_directory_can_be_looked_at_by_the_command(perform):
    """ST-88: what the journal names is the study file"""
    runs = perform(doubled)
    said = subprocess.run([binary(), "status", runs.directory], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0 and "2 success" in said.stdout, said.stdout + said.stderr
