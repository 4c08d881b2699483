"""Agents, evaluators and levels of many shapes: the same records from DRE and from Fairtrial."""

import json

import pytest
import zoo

CLOCK = {"latency", "latency_s", "started_at", "ended_at", "timestamp"}
HEAD = "schema_version: 0.2.0\nstudy_id: zoo\ntitle: Zoo\nblocks: [{name: site, levels: [x, 7]}]\n"
JUDGE = "def judge(output): return {'size': len(output)} if isinstance(output, dict) else []\n"
PLAY = """
import random
def play(run_spec, condition):
    metrics = {"primary_outcome": 1 / condition.factor_assignments["x"], "cost_usd": 2, "drawn": random.random()}
    return {"output": {"seed": run_spec.seed, "problem": run_spec.problem_id}, "metrics": metrics}
"""
SIMPLE = "def go(condition, problem_packet): return {'output': {'answer': [1, 2, 3], 'text': 'é'}}\n"


def agents():
    names = ", ".join(zoo.AGENT_NAMES)
    bound = "".join("  %s: 'agent.py:%s'\n" % (name, name) for name in zoo.AGENT_NAMES)
    packet = "{family: f, brief: do it, payload: {n: 1, m: [1.0, yes]}, metadata: {w: v}, evaluator: 'agent.py:judge'}"
    return f"agent_specs: [{names}]\nproblem_ids: [p]\nproblems: {{p: {packet}}}\nagents:\n{bound}", zoo.AGENTS + JUDGE


def evaluators():
    names = ", ".join(zoo.EVALUATOR_NAMES)
    bound = "".join("  %s: {evaluator: 'agent.py:%s'}\n" % (name, name) for name in zoo.EVALUATOR_NAMES)
    head = "agent_specs: [go]\nagents: {go: 'agent.py:go'}\n"
    return f"{head}problem_ids: [{names}]\nproblems:\n{bound}", zoo.EVALUATORS + SIMPLE


def levels():
    head = "agent_specs: [go]\nagents: {go: 'agent.py:go'}\nproblem_ids: [p]\nproblems: {p: {}}\nfactors:"
    return head + zoo.LEVELS + "run_budget: {max_runs: 30}\n", SIMPLE


def standalone():
    levels = "[{name: a, value: 1}, {name: b, value: 0}]"
    return f"factors: [{{name: x, levels: {levels}}}]\nrunner: {{python: 'agent.py:play', contract: dre}}\n", PLAY


@pytest.mark.parametrize("made", [agents, evaluators, levels, standalone], ids=lambda made: made.__name__)
def test_both_record_the_same(sides, made):
    """SF-45 to SF-54, SF-56"""
    study, functions = made()
    sides.write("study.yaml", HEAD + study)
    sides.write("agent.py", functions)
    sides.dre("study.yaml", "theirs")
    sides.fairtrial("run", "study.yaml", "--out", "ours", "-j", "2", expect=None)
    theirs, ours = (checkpoints(sides.folder / side) for side in ("theirs", "ours"))
    assert theirs.keys() == ours.keys()
    found = [line for name in theirs for line in differences(name, theirs[name], ours[name])]
    assert not found, "\n".join(found)
    assert sides.compare("theirs", "ours", "--mask-event-time", "--no-checkpoints") == "equal"


def checkpoints(directory):
    """By what was run, so that a difference names it."""
    folder = directory / "artifacts" / "checkpoints"
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return {name_of(checkpoint["run_spec"]): checkpoint for checkpoint in found}


def name_of(run):
    return "%s on %s in %s" % (run["agent_spec_ref"], run["problem_id"], run["condition_id"])


def differences(place, left, right):
    """Values by type, too; NaN equals itself; clock readings are left out."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        for key in left.keys() - CLOCK:
            yield from differences(f"{place}.{key}", left[key], right[key])
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, pair in enumerate(zip(left, right)):
            yield from differences(f"{place}[{number}]", *pair)
    elif repr(left) != repr(right):
        yield f"{place}: {left!r} is {right!r} here"
