"""What analysts do with a directory: `design-research-analysis` on Fairtrial's and on DRE's."""

import json

import pytest
from two_sides import FIXTURES

AGENT = """
def solve(*, condition, run_spec, problem_packet):
    factors, agent = condition.factor_assignments, run_spec.agent_spec_ref
    outcome = 0.56 + 0.08 * (factors["learning_strategy"] == "self-learning-agent")
    outcome += 0.04 * (factors["tuning_regime"] == "aggressive") + 0.03 * (agent == "self-learning-agent")
    return {
        "output": {"text": f"{agent} on {problem_packet.problem_id}"},
        "metrics": {"primary_outcome": round(outcome, 4), "input_tokens": 150, "output_tokens": 240,
                    "cost_usd": 0.022},
    }
"""
BINDINGS = """
agents:
  deterministic-baseline: solve.py:solve
  self-learning-agent: solve.py:solve
problems:
  optimization-small: {family: small}
  optimization-medium: {family: medium}
"""
ANALYSE = """
import dataclasses, json, sys
import design_research_analysis as analysis
directory = sys.argv[1]
events = analysis.build_event_table_from_artifacts(directory)
report = analysis.validate_experiment_events(directory)
metrics = ["primary_outcome", "input_tokens", "output_tokens", "cost_usd"]
runs = analysis.build_run_metric_table_from_artifacts(directory, metrics=metrics)
pairs = analysis.compare_condition_pairs_from_artifacts(
    directory, metric="primary_outcome", condition_column="tuning_regime")
tables = {"valid": report.is_valid, "errors": list(report.errors), "events": events, "runs": runs,
          "pairs": dataclasses.asdict(pairs)}
print(json.dumps(tables, default=str))
"""
CLOCK = {"timestamp", "start_time", "end_time", "latency_s", "manifest_path"}


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_optimization_example_is_analysed_as_dres_own(sides, jobs):
    """SF-65, SF-51, SF-54"""
    study = (FIXTURES / "studies" / "example_recipe_optimization_benchmark_run" / "study.yaml").read_text()
    sides.write("study.yaml", study + BINDINGS)
    sides.write("solve.py", AGENT)
    sides.dre("study.yaml", "theirs")
    sides.fairtrial("run", "study.yaml", "--out", "ours", "-j", jobs)
    assert sides.compare("theirs", "ours", "--mask-event-time", "--no-checkpoints") == "equal"
    theirs, ours = (without_clock(json.loads(sides.script(ANALYSE, side).stdout)) for side in ("theirs", "ours"))
    assert ours == theirs
    assert ours["valid"]
    assert len(ours["events"]) == len(ours["runs"]) == 8
    assert sorted({run["primary_outcome"] for run in ours["runs"]}) == [0.56, 0.59, 0.6, 0.63]
    assert len(ours["pairs"]["comparisons"]) == 1


def without_clock(value):
    if isinstance(value, dict):
        return {key: without_clock(item) for key, item in value.items() if key not in CLOCK}
    return [without_clock(item) for item in value] if isinstance(value, list) else value
