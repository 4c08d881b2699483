"""One program that runs studies, DRE or Fairtrial, as a question sees it: the same study, agent and evaluator, the same
words for what can be looked at afterwards. What the two call differently is said here and nowhere else.

A question's agent is `def body(factors, seed)`, its evaluator `def score(output)`.
"""

import contextlib
import csv
import os
import subprocess
import time
from pathlib import Path

from two_sides import BINARY, HERE, LIMIT_S

PRELUDE = """
import os, pathlib, random, sys, time
HERE = pathlib.Path(%r)

def note(name, text="."):
    with open(HERE / name, "a") as file:
        file.write("%%s\\n" %% text)

def notes(name):
    return (HERE / name).read_text().splitlines() if (HERE / name).exists() else []

def wait(holds):
    end = time.monotonic() + 10
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
"""


def study(levels=(1, 2), replicates=1, budget="", problem="", study_id="s", more=""):
    """A study file that both read: one factor, one agent, one problem."""
    values = ", ".join("{name: l%s, value: %s}" % (level, level) for level in levels)
    return (
        f"study_id: {study_id}\ntitle: T\nfactors:\n- {{name: x, levels: [{values}]}}\n"
        "problem_ids: [p]\nagent_specs: [a]\n"
        "agents: {a: {python: 'agent.py:go', sandbox: none, pass_env: [QUESTION]}}\n"
        f"problems: {{p: {{{problem}}}}}\nrun_budget: {{replicates: {replicates}{budget}}}\n{more}"
    )


JUDGED = "evaluator: 'judge.py:judge'"


class Side:
    """Everything happens in `folder`: study.yaml, agent.py, and results in `out`."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.out = self.folder / "out"

    def write(self, text, body="", score=""):
        (self.folder / "study.yaml").write_text(text)
        (self.folder / "agent.py").write_text(PRELUDE % str(self.folder) + body + self.AGENT)
        (self.folder / "judge.py").write_text(score + self.JUDGE)

    def run(self, text=None, body="", score="", resume=False, jobs=1, question="", more=()):
        """Runs the study to its end."""
        if text is not None:
            self.write(text, body, score)
        return self.call(*self.to_run(resume, jobs), *more, question=question)

    @contextlib.contextmanager
    def running(self, jobs=1, question=""):
        """The study in the background; killed at the end where it is still there."""
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(self.to_run(False, jobs), cwd=self.folder, env=environment(question), **pipes)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def call(self, *argv, question=""):
        options = {"capture_output": True, "text": True, "timeout": LIMIT_S}
        return subprocess.run(list(map(str, argv)), cwd=self.folder, env=environment(question), **options)

    def table(self, name="runs"):
        path = self.out / f"{name}.csv"
        if not path.exists():
            return []
        with open(path, newline="") as file:
            return list(csv.DictReader(file))

    def column(self, column, name="runs"):
        return [row[column] for row in self.table(name)]

    def notes(self, name):
        """The lines that agents left in a file."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def files(self):
        return {str(path.relative_to(self.out)): path.read_bytes() for path in self.out.rglob("*") if path.is_file()}

    def holds(self, text):
        """Whether a text is anywhere in the results."""
        return any(text.encode() in data for data in self.files().values())


class Dre(Side):
    name = "DRE"
    AGENT = "\ndef go(condition, seed, problem_packet): return body(condition.factor_assignments, seed)\n"
    JUDGE = "\ndef judge(output): return score(output)\n"

    def __init__(self, folder, python):
        super().__init__(folder)
        self.python = python

    def to_run(self, resume, jobs):
        host = [self.python, str(HERE / "dre_host.py"), "study.yaml", "out", "--jobs", str(jobs)]
        return host + ["--resume"] * resume

    def command(self, *words):
        return self.call(self.python, "-m", "design_research_experiments.cli", *words)

    def validate(self, text):
        self.write(text)
        return self.command("validate-study", "study.yaml")

    def recorded(self):
        """Runs whose end was recorded."""
        return len(list((self.out / "artifacts" / "checkpoints").glob("*.json")))


class Fairtrial(Side):
    name = "Fairtrial"
    AGENT = "\ndef go(run): return body(run['condition']['factors'], run['seed'])\n"
    JUDGE = "\ndef judge(task): return score(task['output'])\n"

    def to_run(self, resume, jobs):
        return [str(BINARY), "run", "study.yaml", "--out", "out", "-j", str(jobs)] + ["--resume"] * resume

    def command(self, *words):
        return self.call(BINARY, *words)

    def validate(self, text):
        self.write(text, "def body(factors, seed): pass")
        return self.command("plan", "study.yaml")

    def recorded(self):
        return len(self.table("attempts"))


def environment(question):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "QUESTION": question}


def wait_for(holds):
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, "not within %d s" % LIMIT_S
        time.sleep(0.005)
