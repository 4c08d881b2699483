import sys

collect_ignore = ["site"]


def pytest_terminal_summary(terminalreporter):
    module = sys.modules.get("test_foreign")
    if module is not None and module.SEEN:
        terminalreporter.section("suites of peers")
        for line in module.SEEN:
            terminalreporter.write_line(line)
