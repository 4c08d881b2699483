import dre_environment
import pytest
import two_sides

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
    for reason in sorted(SKIPPED):
        terminalreporter.section("compared with DRE")
        terminalreporter.write_line("SKIPPED: %s" % reason)
