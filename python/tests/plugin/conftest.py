import json
import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
import pytest_environments

ROOT = Path(__file__).resolve().parents[3]
PLUGIN = ROOT / "crates" / "fairtrial-candidates" / "src" / "cases" / "pytest_plugin.py"
LIMIT_S = 300  # on a busy machine; each run takes a second or a few


@pytest.fixture(scope="session", params=pytest_environments.NAMES)
def python(request):
    """An interpreter with one of the versions of pytest."""
    try:
        return pytest_environments.interpreter(request.param)
    except pytest_environments.Missing as missing:
        pytest.skip("%s: %s" % (request.param, missing))


@pytest.fixture
def suite(tmp_path, python):
    return Suite(tmp_path, python)


class Suite:
    """Test files, run by a pytest that knows the plug-in by its environment alone."""

    def __init__(self, folder, python):
        self.folder = folder / "project"
        self.folder.mkdir()
        self.python = python
        self.results = folder / "results.jsonl"
        self.plugins = folder / "plugins"
        self.plugins.mkdir()
        shutil.copy(PLUGIN, self.plugins / "fairtrial_cases.py")

    def write(self, **files):
        for name, text in files.items():
            (self.folder / (name + ".py")).write_text(textwrap.dedent(text))
        return self

    def run(self, *options, env=(), case_timeout_s=None):
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment.update(
            PYTEST_PLUGINS="fairtrial_cases",
            PYTHONPATH=str(self.plugins),
            FAIRTRIAL_CASES=str(self.results),
            PYTHONDONTWRITEBYTECODE="1",
            PYTHONHASHSEED="0",
        )
        environment.update(env)
        if case_timeout_s is not None:
            environment["FAIRTRIAL_CASE_TIMEOUT_S"] = str(case_timeout_s)
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        self.results.unlink(missing_ok=True)
        return Ran(done, [json.loads(line) for line in lines])


class Ran:
    def __init__(self, done, lines):
        self.code = done.returncode
        self.text = done.stdout + done.stderr
        self.lines = lines
        self.cases = {line["id"]: line for line in lines if line["event"] == "end"}

    def events(self, event):
        return [line for line in self.lines if line["event"] == event]

    def statuses(self):
        return {case: line["status"] for case, line in self.cases.items()}

    def values(self, case):
        return self.cases[case]["values"]
