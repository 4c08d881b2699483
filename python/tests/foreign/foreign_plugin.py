"""A pytest plugin for foreign suites: runs the cases that are wanted and writes down how each ended."""

import json
import os
import re
import signal

import pytest

from fairtrial._lifetime import lifetime

LIMIT_S = 60
LISTED_LIMIT_S = 6  # a case that is left out is run to see that it does not pass


def pytest_collection_modifyitems(config, items):
    wanted = re.compile(os.environ["FOREIGN_WANTED"])
    kept = [item for item in items if wanted.search(_name(item.nodeid))]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    signal.signal(signal.SIGALRM, _too_late)
    limit_s = LISTED_LIMIT_S if _name(item.nodeid) in _listed else LIMIT_S
    signal.setitimer(signal.ITIMER_REAL, limit_s, 5)  # again, should the case not give up
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def pytest_sessionfinish():
    """What cases left in the middle of their work is not waited for."""
    for owner in list(lifetime.executors):
        owner.end(kill=True)


def _too_late(*_):
    raise TimeoutError("the case took too long")


def pytest_runtest_logreport(report):
    name = _name(report.nodeid)
    if report.failed:
        _ended[name] = "failed"
    elif report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        _ended.setdefault(name, f"skipped: {reason.removeprefix('Skipped: ')}")
    elif report.when == "call":
        _ended.setdefault(name, "passed")
    # After each case: if the time runs out, it is known where.
    with open(os.environ["FOREIGN_REPORT"], "w") as file:
        json.dump(_ended, file, indent=1)


_ended = {}
with open(os.environ["FOREIGN_LISTED"]) as listed:
    _listed = json.load(listed)


def _name(nodeid):
    """`Class::test[parameters]`, without the file."""
    return nodeid.split("::", 1)[1]
