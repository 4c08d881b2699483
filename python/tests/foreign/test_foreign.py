"""The suites of peers, unchanged, with fairtrial in the peer's place; each under every interpreter it is for.

`FAIRTRIAL_FOREIGN_VERSIONS=3.11,3.13` runs fewer.
"""

import json
import os
import re
import signal
import subprocess

import pytest
import sources
from suites import DIVERGENCES, HERE, OTHER_REASONS, SUITES

SEEN = []  # what the terminal summary says
_VERSIONS = os.environ.get("FAIRTRIAL_FOREIGN_VERSIONS", "3.10,3.11,3.12,3.13").split(",")
RUNS = [(suite, version) for suite in SUITES for version in suite.versions if version in _VERSIONS]


@pytest.mark.parametrize(("suite", "version"), RUNS, ids=[f"{suite.name}-on-{version}" for suite, version in RUNS])
def test_a_peers_own_tests_pass_but_for_those_that_are_listed(suite, version, tmp_path):
    """The foreign minimums of the test plan of spec/python.md: PY-9 to PY-36."""
    try:
        ended, output = _run(suite, version, tmp_path)
    except sources.Missing as missing:
        SEEN.append(f"{suite.name} on {version}: skipped: {missing}")
        pytest.skip(str(missing))
    problems = list(_problems(suite, ended))
    counts = {group: _passed(ended, pattern) for group, (pattern, _) in suite.groups.items()}
    SEEN.append(f"{suite.name} on {version}: {', '.join(f'{count} {group}' for group, count in counts.items())}")
    SEEN.extend(f"  left out: {case}: {suite.left_out[case]}" for case in ended if case in suite.left_out)
    for group, (_, minimum) in suite.groups.items():
        if counts[group] < minimum:
            problems.append(f"only {counts[group]} of at least {minimum} passed: {group}")
    assert not problems, "\n".join([*problems, output[-20_000:]])


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_each_case_that_is_left_out_has_a_reason_that_counts(suite):
    """The table of deliberate divergences of spec/python.md."""
    for case, reason in suite.left_out.items():
        assert reason in DIVERGENCES or reason.startswith(OTHER_REASONS), f"{case}: {reason}"


def _problems(suite, ended):
    for case, how in ended.items():
        if case in suite.left_out and how == "passed" and not suite.left_out[case].startswith("needs: "):
            yield f"{case} is left out, yet it passes"
        if case not in suite.left_out and how != "passed":
            yield f"{case} {how}"


def _passed(ended, pattern):
    return sum(how == "passed" for case, how in ended.items() if re.search(pattern, case))


def _run(suite, version, tmp_path):
    folder = sources.unpacked(suite.archive) / suite.folder if suite.archive else sources.file_of_3_10()
    report, listed = tmp_path / "report.json", tmp_path / "listed.json"
    listed.write_text(json.dumps(list(suite.left_out)))
    path = [HERE.parents[1], HERE, HERE / "site", folder]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    env |= {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "FOREIGN_ADAPTER": suite.adapter if suite.archive else "",
        "FOREIGN_WANTED": "|".join(pattern for pattern, _ in suite.groups.values()),
        "FOREIGN_REPORT": str(report),
        "FOREIGN_LISTED": str(listed),
    }
    plugins = ["-p", "no:cacheprovider", "-p", "foreign_plugin", "-p", suite.adapter, *suite.options]
    runner = [sources.environment(version), "-m", "pytest", "-q", "--tb=short", "--assert=plain"]
    output = _output_of([*runner, f"--rootdir={folder}", *plugins, *suite.files], suite.limit_s, cwd=folder, env=env)
    return json.loads(report.read_text()) if report.exists() else {}, output


def _output_of(command, limit_s, **options):
    """What a command writes; it and what it started are killed when its time is over."""
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen(command, text=True, start_new_session=True, errors="replace", **pipe, **options)
    try:
        return process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0] + f"\nkilled after {limit_s} s"
