import sys


def pytest_terminal_summary(terminalreporter):
    module = sys.modules.get("test_peers")
    if module is not None and module.SEEN:
        terminalreporter.section("compared with peers")
        terminalreporter.write_line(module.summary())
