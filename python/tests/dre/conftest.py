import signal
import sys

import dre_environment
import pytest
import two_sides

# A shell that starts tests in the background ignores SIGINT for them, and so would DRE, which is to be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
SKIPPED = set()  # why, for the terminal summary


@pytest.fixture(scope="session")
def dre_python():
    """The interpreter that has DRE."""
    try:
        return dre_environment.dre()
    except dre_environment.Missing as missing:
        SKIPPED.add(str(missing))
        pytest.skip(str(missing))


@pytest.fixture
def sides(dre_python, tmp_path):
    return two_sides.Sides(tmp_path, dre_python)


def pytest_terminal_summary(terminalreporter):
    module = sys.modules.get("test_weaknesses")
    lines = ["SKIPPED: %s" % reason for reason in sorted(SKIPPED)] + (module.SEEN if module else [])
    if lines:
        terminalreporter.section("compared with DRE")
        for line in lines:
            terminalreporter.write_line(line)
