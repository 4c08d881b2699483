"""A pytest plugin for foreign suites: runs the cases that are wanted and writes down how each ended."""

import json
import os
import re


def pytest_collection_modifyitems(config, items):
    wanted = re.compile(os.environ["FOREIGN_WANTED"])
    kept = [item for item in items if wanted.search(_name(item.nodeid))]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


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


def _name(nodeid):
    """`Class::test[parameters]`, without the file."""
    return nodeid.split("::", 1)[1]
