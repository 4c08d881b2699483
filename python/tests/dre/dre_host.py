"""A host program of DRE's: runs a study with the agents and problems that its file binds for Fairtrial.

    python dre_host.py STUDY OUT [--resume] [--jobs N]

DRE's own command binds no functions, so each user of DRE writes a program such as this. It runs by the interpreter
that has DRE.
"""

import argparse
import importlib.util
import json
import resource
import time
from pathlib import Path

import yaml
from design_research_experiments import RunOutput, Study, run_study


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("study", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    study = Study.from_yaml(options.study)
    study.output_dir = options.out
    bound = bindings(options.study, yaml.safe_load(options.study.read_text()))
    began = time.perf_counter()
    results = run_study(study, **bound, parallelism=options.jobs, resume=options.resume, show_progress=False)
    seconds, peak_kib = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"runs": len(results), "seconds": seconds, "peak_kib": peak_kib}))


def bindings(study, file):
    if "runner" in file:
        play = function(study, file["runner"])
        return {"condition_runner": lambda run_spec, condition: run_output(play(run_spec, condition))}
    return {
        "agent_bindings": {name: function(study, entry) for name, entry in file["agents"].items()},
        "problem_registry": {name: packet(study, name, entry) for name, entry in file["problems"].items()},
    }


def run_output(result):
    return RunOutput(outputs=result["output"], metrics=result["metrics"])


def packet(study, name, entry):
    evaluator = function(study, entry["evaluator"]) if "evaluator" in entry else None
    return {**entry, "problem_id": name, "evaluator": evaluator}


def function(study, binding):
    """What `FILE.py:NAME` names, or a mapping that has it under `python`."""
    entry = binding if isinstance(binding, str) else binding["python"]
    file, name = entry.rsplit(":", 1)
    spec = importlib.util.spec_from_file_location(Path(file).stem, study.parent / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


if __name__ == "__main__":
    main()
