"""Agents, evaluators and levels of every shape that SF-45 to SF-50 speak of, but for those where SF-5 deviates."""

AGENTS = r"""
import collections, math

def words(problem_packet): return "a text, \"quoted\"\nand \u00e9\U0001f600"
def number(problem_packet): return 3.5
def nothing(problem_packet): return None
def truth(problem_packet): return True
def listed(problem_packet): return [1, "two", None]
def outputs(problem_packet): return {"outputs": {"a": 1, "b": [1.0, {"c": None}]}}
def unwrapped(problem_packet): return {"answer": 42}
def only_text(problem_packet): return {"output": {}, "text": "said"}
def odd_text(problem_packet): return {"output": {"text": 5}}
def only_odd_text(problem_packet): return {"text": 2.5}
def says_null(problem_packet): return {"output": {}, "metrics": {"primary_outcome": None}}
def numbers(problem_packet):
    return {"output": {"nan": math.nan, "inf": -math.inf, "big": 10**30, "small": 1e-7, "whole": 1e16, "zero": -0.0},
            "metrics": {"primary_outcome": math.inf, "yes": True, "none": None, "word": "w", "many": [1, 2]}}
def tokens(problem_packet):
    return {"output": {"text": "t"}, "metrics": {"input_tokens": "12", "output_tokens": "many", "cost_usd": "0.5"}}
def no_tokens(problem_packet): return {"output": {}, "metrics": {"input_tokens": None, "cost_usd": None}}
def reported(problem_packet):
    return {"output": {}, "metrics": {"latency_s": 99, "tool_call_count": 77, "primary_outcome": 0.25}}
def events(problem_packet):
    return {"output": {"text": "ignored"}, "events": [
        "no mapping", 5, None, {"timestamp": "t0"},
        {"timestamp": "t1", "event_type": "tool_call", "tool_name": "hammer", "level": "tool-call", "actor_id": "x",
         "trial_id": 3, "step_id": 1.5, "evaluation_id": "e", "session_id": 9, "text": 12, "record_id": "mine",
         "meta_json": {"b": [1, {"z": None, "a": "\u00e9"}], "a": 1.0}, "run_id": "forged", "study_id": "forged"},
        {"timestamp": "t2", "event_type": "step", "level": "run"},
        {"timestamp": "t3", "event_type": "assistant_output", "actor_id": "y", "level": "evaluation"}]}
def traces(problem_packet):
    return {"output": {}, "trace_refs": ["a/b.json", 7], "metadata": {"trace_path": "p", "trace_dir": "d"}}
def described(problem_packet):
    return {"output": {}, "metadata": {"model_name": "m", "model_provider": "q", "agent_kind": "k", "pattern_name": "n",
                                       "request_id": "r", "other": [1]}}
def empty_names(problem_packet): return {"output": {}, "metadata": {"model_name": "", "agent_kind": None}}

class Result:
    def __init__(self, output, model=None, **metadata):
        self.success, self.output, self.metadata, self.model_response = False, output, metadata, model
Usage = collections.namedtuple("Usage", "prompt_tokens completion_tokens total_tokens")
Response = collections.namedtuple("Response", "usage model provider")
def result_mapping(problem_packet):
    model = Response(Usage(3, 4, 7), "big", "them")
    return Result({"final_output": {"k": 1}, "metrics": {"m": 2}}, model, trace_path="t.json")
def result_text(problem_packet): return Result({"final_output": "words"}, trace_refs=["one", "two"])
def result_other(problem_packet): return Result({"final_output": 5})
def result_model_text(problem_packet): return Result({"model_text": "generated"})
def result_empty_text(problem_packet): return Result({"text": "", "model_text": "unused"})
def result_named(problem_packet):
    return Result({"a": 1}, Response({"prompt_tokens": 1.5}, "newer", " "), model_name="older")
def result_plain(problem_packet): return Result({"a": 1, "b": 2})

def factory(c): return lambda problem_packet, seed: {"output": {"of": c.condition_id, "seed": seed}}
class Runs:
    def run(self, prompt, request_id): return {"output": {"prompt": prompt, "id": request_id}}
instance = Runs()
def by_name(brief, condition, run_spec, problem, input, dependencies):
    return {"output": {"brief": brief, "input": input, "names": sorted(dependencies), "id": problem.problem_id,
                       "factors": condition.factor_assignments, "blocks": condition.block_assignments,
                       "meta": sorted(run_spec.execution_metadata), "replicate": run_spec.replicate,
                       "payload": problem.payload, "family": problem.family, "metadata": problem.metadata}}
def by_place(packet, number): return {"output": {"id": packet.problem_id, "seed": number}}
def any_place(*given): return {"output": {"count": len(given)}}

class Odd(Exception): pass
def raises(problem_packet): raise Odd("line one\nline, \"two\"")
def raises_nothing(problem_packet): raise KeyError()
def raises_key(problem_packet): raise KeyError("k")
"""
AGENT_NAMES = [line.split("(")[0].split()[1] for line in AGENTS.splitlines() if line.startswith("def ")] + ["instance"]

EVALUATORS = r"""
import dataclasses, math
def plain(output): return {"a": 1, "b": True, "c": "no", "d": None, "e": 0.5, "higher_is_better": False}
def row(output): return {"metric_name": "n", "metric_value": 3, "metric_unit": "s", "notes_json": {"z": 1, "a": [1, 2]}}
def value(output): return {"value": 2.5, "evaluator_id": "me", "aggregation_level": "study"}
def rows(output): return [{"metric_name": "x", "value": 1}, {"y": 2, "z": 3}, 7, "no", None, [{"w": 4}]]
def number(output): return 0.5
def text(output): return "good"
def nothing(output): return None
def infinite(output): return {"s": math.nan}
def seen(output): return {"was_mapping": isinstance(output, dict), "size": len(output)}
@dataclasses.dataclass
class Score:
    quality: float
    passed: bool
    name: str
def fields(output): return Score(0.75, True, "n")
class Loose:
    def __init__(self): self.quality = 2; self.name = "n"
def loose(output): return Loose()
class Given:
    def to_dict(self): return {"given": 1}
def given(output): return Given()
@dataclasses.dataclass
class Tight:
    __slots__ = ("tight",)
    tight: int
def among(output): return [Given(), Tight(3), {"b": 2}]
"""
EVALUATOR_NAMES = [line.split("(")[0].split()[1] for line in EVALUATORS.splitlines() if line.startswith("def ")]

LEVELS = r"""
- {name: shape, levels: [{name: l, value: [1, 'a', null, {k: 2.0}]}, {name: m, value: {b: true, a: 'é"'}}]}
- {name: text, levels: [{name: q, value: "a, \"b\"\nc"}, {name: e, value: ''}, {name: n, value: null}]}
- {name: number, levels: [{name: big, value: 1.0e+16}, {name: int, value: 100000000000000000000},
                          {name: small, value: 1.0e-05}, {name: inf, value: .inf}, {name: yes, value: yes}]}
- {name: date, levels: [{name: d, value: 2026-01-02}, {name: t, value: 2026-01-02T03:04:05Z}]}
"""
