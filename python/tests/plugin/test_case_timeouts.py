"""`case_timeout`: by an exception where that helps, else with the process. CA-48, CA-52"""

SLOW = """
    import time, threading
    import pytest

    def test_sleeps():
        time.sleep(60)

    def test_spins_and_catches():
        try:
            while True:
                pass
        except Exception:
            pass

    def test_waits():
        threading.Event().wait()

    @pytest.fixture
    def slow_to_leave():
        yield
        time.sleep(60)

    def test_leaves_late(slow_to_leave):
        pass

    def test_is_quick():
        pass
"""


def test_a_slow_case_times_out_and_the_next_one_runs(suite):
    for options in ([], ["-n", "1"]):
        ran = suite.write(test_slow=SLOW).run(*options, case_timeout_s=0.5)
        statuses = {case.split("::")[1]: status for case, status in ran.statuses().items()}
        slow = ("test_sleeps", "test_spins_and_catches", "test_waits", "test_leaves_late")
        assert statuses == {**dict.fromkeys(slow, "timed_out"), "test_is_quick": "passed"}, ran.text
        assert "longer than 0.5 s" in ran.cases["test_slow.py::test_sleeps"]["error"]


STUCK = """
    def test_first():
        pass

    def test_stuck():
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass
"""


def test_a_case_that_will_not_end_takes_the_process_with_it(suite):
    ran = suite.write(test_stuck=STUCK).run(case_timeout_s=0.5)
    assert ran.code == 1
    assert ran.statuses() == {"test_stuck.py::test_first": "passed"}
    stuck = ran.lines[-1]
    assert (stuck["event"], stuck["id"]) == ("stuck", "test_stuck.py::test_stuck")
    assert "in test_stuck" in stuck["error"]


def test_a_stuck_case_of_a_worker_is_named_too(suite):
    ran = suite.write(test_stuck=STUCK).run("-n", "1", case_timeout_s=0.5)
    assert [line["id"] for line in ran.events("stuck")] == ["test_stuck.py::test_stuck"]
    assert ran.statuses()["test_stuck.py::test_first"] == "passed"


AT_THE_LIMIT = """
    import time
    import pytest

    @pytest.fixture
    def around():
        yield
        time.sleep(0.001)

    @pytest.mark.parametrize("n", range(100))
    def test_close(n, around):
        time.sleep(0.0195 + (n % 10) / 10_000)
"""


def test_cases_that_end_as_their_time_does_pass_or_time_out(suite):
    ran = suite.write(test_close=AT_THE_LIMIT).run(case_timeout_s=0.02)
    assert set(ran.statuses().values()) <= {"passed", "timed_out"}, ran.text
    assert len(ran.cases) == 100 and ran.lines[-1]["event"] == "finish", ran.text
    assert not ran.events("internal_error") and not ran.events("stuck")
