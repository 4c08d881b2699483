"""What the tests of evaluations share: a small project with rivals, and what of a report is the same each time."""

import json
import subprocess

from support import WAIT_S

BASE = "echo $((6 * 7))\n"
RIVALS = [
    {"name": "shorter", "files": {"answer.sh": "echo 42\n"}, "meta": {"by": "hand"}},
    {"name": "wrong", "files": {"answer.sh": "echo 41\n"}},
    {"name": "nothing", "files": {"answer.sh": BASE}},
    {"name": "outside", "files": {"../answer.sh": "echo 42\n"}},
    {"name": "again", "files": {"answer.sh": "echo 42\n"}},
]


class Project:
    """A repository of one program, rivals of it, and the evaluation of both."""

    def __init__(self, directory):
        self.directory = directory
        self.repo = directory / "repo"
        self.repo.mkdir()
        (self.repo / "answer.sh").write_text(BASE)
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
            self.git(*command)
        self.rivals(*RIVALS)

    def git(self, *command):
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        done = subprocess.run(["git", *identity, *command], cwd=self.repo, check=True, capture_output=True, text=True)
        return done.stdout

    def rivals(self, *rivals):
        (self.directory / "rivals.jsonl").write_text("".join(json.dumps(rival) + "\n" for rival in rivals))

    def spec(self, **more):
        """As a program says it, seen from the project's directory."""
        tests = [{"name": "answer", "command": ["sh", "answer.sh"], "output": "compare", "timeout": WAIT_S * 2}]
        spec = {"version": 1, "repo": "repo", "candidates": {"jsonl": "rivals.jsonl"}, "tests": tests, "parallel": 2}
        return spec | {"output": "results", "sandbox": "none"} | more

    def file(self, **more):
        path = self.directory / "EVAL.yaml"
        path.write_text(json.dumps(self.spec(**more)))
        return path

    def rival_that_waits(self):
        """Its answer waits for the file `go`, once it has made `begun`."""
        begun, go = self.directory / "begun", self.directory / "go"
        waits = f"echo $$ > {begun}.new; mv {begun}.new {begun}; while [ ! -e {go} ]; do sleep 0.01; done"
        self.rivals({"name": "waits", "files": {"answer.sh": f"[ -e {go} ] || {{ {waits}; }}\necho 42\n"}})
        return begun, go


def lasting(report, *others):
    """What of a report is the same each time."""
    report = report if isinstance(report, dict) else report.to_dict()
    for evaluation in report["evaluations"]:
        evaluation["metrics"] = None
        if (evaluation["failure"] or {}).get("outcome"):
            evaluation["failure"]["outcome"]["wall_s"] = None
    return {name: value for name, value in report.items() if name not in ("costs", *others)}


# Evaluates the file that it is given, and says what is left of it when it was interrupted.
INTERRUPTED = """
import os, sys
import fairtrial as ft
from support import descendants

try:
    report = ft.evaluate(sys.argv[1], resume=len(sys.argv) > 2)
    print(report.evaluations)
except KeyboardInterrupt:
    print("interrupted", descendants())
"""
