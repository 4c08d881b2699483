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
from suites import HERE, LEFT_OUT, NOT_HERE, PRIVATE, SUITES, VACUOUS, divergences

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
    left_out = suite.left_out(version)
    problems = list(_problems(ended, left_out))
    claimed = {case: how for case, how in ended.items() if case not in left_out}
    counts = {group: _passed(claimed, pattern, suite.counts) for group, (pattern, _) in suite.groups.items()}
    numbers = ", ".join(f"{count} {group}" for group, count in counts.items())
    SEEN.append(f"{suite.name} on {version}: {suite.counts} passed: {numbers}")
    SEEN.extend(f"  left out: {case}: {left_out[case]}" for case in ended if case in left_out)
    SEEN.extend(f"  not for here: {case}: {how}" for case, how in ended.items() if _is_not_for_here(how))
    for group, (_, minimum) in suite.groups.items():
        if counts[group] < minimum:
            problems.append(f"only {counts[group]} of at least {minimum} passed: {group}")
    assert not problems, "\n".join([*problems, output[-20_000:]])


def test_each_case_that_is_left_out_has_a_reason_that_counts():
    """A row of the table of deliberate divergences in docs/python.md, or that it tests private attributes."""
    published = divergences()
    for suite, cases in LEFT_OUT.items():
        for case, reason in cases.items():
            assert reason in published or reason.startswith(PRIVATE), f"{suite}: {case}: {reason}"


def test_what_is_left_out_is_of_a_suite_that_is_run():
    known = {name for suite in SUITES for name in (suite.name, *(f"{suite.name} on {v}" for v in suite.versions))}
    assert set(LEFT_OUT) <= known


def _problems(ended, left_out):
    for case, how in ended.items():
        if case in left_out and how == "passed" and not left_out[case].endswith(VACUOUS):
            yield f"{case} is left out, yet it passes"
        if case not in left_out and how != "passed" and not _is_not_for_here(how):
            yield f"{case} {how}"
    yield from (f"{case} is left out, yet there is no such case" for case in left_out if case not in ended)


def _is_not_for_here(how):
    return how.startswith("skipped: ") and how.removeprefix("skipped: ") in NOT_HERE


def _passed(claimed, pattern, counts):
    passed = [case for case, how in claimed.items() if how == "passed" and re.search(pattern, case)]
    return len({case.partition("[")[0] for case in passed} if counts == "functions" else passed)


def _run(suite, version, tmp_path):
    folder = sources.unpacked(suite.archive) / suite.folder if suite.archive else sources.file_of_3_10()
    report, listed = tmp_path / "report.json", tmp_path / "listed.json"
    listed.write_text(json.dumps(list(suite.left_out(version))))
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
