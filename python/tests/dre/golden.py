"""The fixtures' study with its agents, as its README says, and two ways to stop it at a run."""

from two_sides import FIXTURES

# DRE is interrupted as by Ctrl-C; under Fairtrial, which asks for no such thing, a run waits to be stopped.
AGENTS = r"""
import os, signal

def good(*, problem_packet, seed, condition, run_spec):
    if run_spec.run_id == os.environ.get("INTERRUPT_AT"):
        os.kill(os.getpid(), signal.SIGINT)
    if run_spec.run_id == os.environ.get("WAIT_AT"):
        signal.pause()
    return {
        "output": {"text": f'hello, "{seed}"\nline2', "v": condition.factor_assignments["n"]},
        "metrics": {"cost_usd": 0.1, "input_tokens": "12", "extra": True},
        "events": [
            {"event_type": "tool_call", "text": "\u00e9", "actor_id": "me", "meta_json": {"b": 1, "a": [1.0, None]},
             "timestamp": "2026-01-01T00:00:00+00:00"},
            {"event_type": "step", "level": "tool-call", "timestamp": "2026-01-01T00:00:01+00:00"},
        ],
        "metadata": {"model_name": "m1"},
        "trace_refs": ["t/1.json"],
    }

def bad(*, problem_packet, seed):
    raise ValueError('nope, "quoted"')

def evaluate(output):
    return {"score": float(output["v"]), "ok": True, "higher_is_better": True, "skipme": "str"}
"""
BINDINGS = """
agents:
  good: {python: 'agents.py:good', contract: dre, pass_env: [WAIT_AT]}
  bad: {python: 'agents.py:bad', contract: dre}
problems:
  p1: {family: fam, brief: brief, evaluator: 'agents.py:evaluate'}
"""
RUNS = 12


def write(sides):
    study = (FIXTURES / "studies" / "golden_mini" / "study.yaml").read_text()
    sides.write("agents.py", AGENTS)
    sides.write("study.yaml", study.replace("output_dir: artifacts/golden-mini", "output_dir: ours") + BINDINGS)
