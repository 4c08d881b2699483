"""What becomes of each kind of case, under each version of pytest. CA-48"""

import pytest

ZOO = """
    import unittest
    import pytest

    def test_passes():
        print("said")

    def test_fails():
        assert 1 == 2

    @pytest.fixture
    def broken():
        raise ValueError("set-up")

    def test_errs(broken):
        pass

    @pytest.fixture
    def leaves():
        yield
        raise ValueError("teardown")

    def test_passes_then_errs(leaves):
        pass

    def test_fails_then_errs(leaves):
        assert False

    @pytest.mark.skip(reason="not now")
    def test_skips():
        pass

    @pytest.mark.xfail
    def test_xfails():
        assert False

    @pytest.mark.xfail(run=False)
    def test_xfails_unrun():
        assert False

    @pytest.mark.xfail
    def test_xpasses():
        pass

    @pytest.mark.xfail(strict=True)
    def test_xpasses_strictly():
        pass

    @pytest.mark.parametrize("x", [1, "a/b", "\\udc80"])
    def test_param(x):
        pass

    class TestGroup:
        def test_method(self):
            pass

    class Case(unittest.TestCase):
        def test_unit(self):
            self.assertTrue(True)

        @unittest.skip("no")
        def test_unit_skipped(self):
            pass

        @unittest.expectedFailure
        def test_unit_expected(self):
            self.fail()

    def test_subs(subtests):
        for i in range(3):
            with subtests.test("part", i=i):
                assert i != 1
"""

STATUSES = {
    "test_passes": "passed",
    "test_fails": "failed",
    "test_errs": "error",
    "test_passes_then_errs": "error",
    "test_fails_then_errs": "failed",
    "test_skips": "skipped",
    "test_xfails": "xfailed",
    "test_xfails_unrun": "xfailed",
    "test_xpasses": "xpassed",
    "test_xpasses_strictly": "failed",
    "test_param[1]": "passed",
    "test_param[a/b]": "passed",
    "test_param[\\udc80]": "passed",
    "TestGroup::test_method": "passed",
    "Case::test_unit": "passed",
    "Case::test_unit_skipped": "skipped",
    "Case::test_unit_expected": "xfailed",
    "test_subs": "failed",
    "test_subs [part] (i=0)": "passed",
    "test_subs [part] (i=1)": "failed",
    "test_subs [part] (i=2)": "passed",
}


def in_file(name, statuses):
    return {"%s.py::%s" % (name, case): status for case, status in statuses.items()}


@pytest.mark.parametrize("options", [[], ["-n", "2"], ["--import-mode=importlib", "-W", "error", "--capture=sys"]])
def test_every_kind_of_case_has_its_status(suite, options):
    ran = suite.write(test_zoo=ZOO).run(*options)
    # pytest 9 quotes the values of a subtest again in the controller of xdist.
    statuses = {case.replace("'", ""): status for case, status in ran.statuses().items()}
    assert statuses == in_file("test_zoo", STATUSES), ran.text
    assert ran.code == 1
    assert ran.lines[0]["event"] == "session" and ran.lines[-1] == {"event": "finish", "exit": 1}
    begun = [line["id"] for line in ran.events("begin")]
    assert sorted(begun) == sorted(case for case in ran.cases if " [part]" not in case)
    assert ran.cases["test_zoo.py::test_passes"]["stdout"] == "said\n"
    assert "assert 1 == 2" in ran.cases["test_zoo.py::test_fails"]["error"]
    assert "set-up" in ran.cases["test_zoo.py::test_errs"]["error"]
    assert "error" not in ran.cases["test_zoo.py::test_passes"]
    sources = {line["number"]: line["text"] for line in ran.events("source")}
    assert "assert 1 == 2" in sources[ran.cases["test_zoo.py::test_fails"]["source"]]
    of_params = {ran.cases["test_zoo.py::test_param[%s]" % x]["source"] for x in ("1", "a/b")}
    assert len(of_params) == 1 and len(sources) == len(ran.events("source"))


@pytest.mark.parametrize("options", [[], ["-n", "2"]])
def test_a_file_that_cannot_be_collected_is_a_case(suite, options):
    suite.write(test_bad="import nowhere_to_be_found", test_good="def test_it(): pass")
    ran = suite.run(*options, "--continue-on-collection-errors")
    assert ran.statuses()["test_bad.py::collection"] == "error"
    assert "nowhere_to_be_found" in ran.cases["test_bad.py::collection"]["error"]
    if not options:  # xdist goes on without being asked
        assert list(suite.run().statuses()) == ["test_bad.py::collection"]


def test_no_tests_leave_a_session_without_cases(suite):
    ran = suite.write(test_none="x = 1").run()
    assert (ran.code, ran.cases) == (5, {})
    assert ran.lines[-1] == {"event": "finish", "exit": 5}


def test_a_process_that_dies_loses_only_the_case_it_was_at(suite):
    suite.write(
        test_dies="""
        import os
        def test_a(): pass
        def test_b(): os._exit(0)
        def test_c(): pass
        """
    )
    ran = suite.run()
    assert (ran.code, ran.statuses()) == (0, {"test_dies.py::test_a": "passed"})
    assert ran.lines[-1] == {"event": "begin", "id": "test_dies.py::test_b"}
    # With xdist the controller lives on, and says whose worker died.
    ran = suite.run("-n", "1")
    assert ran.statuses() == in_file("test_dies", {"test_a": "passed", "test_b": "crashed", "test_c": "passed"})


def test_a_pytest_inside_a_test_writes_nothing(suite):
    suite.write(
        test_outer="""
        import subprocess, sys, os
        import pytest
        def test_in_a_process(tmp_path):
            inner = tmp_path / "test_inner.py"
            inner.write_text("def test_inner(): pass")
            subprocess.run([sys.executable, "-m", "pytest", str(inner)], check=True, cwd=tmp_path)
        def test_here(tmp_path):
            inner = tmp_path / "test_here_inner.py"
            inner.write_text("def test_inner(): pass")
            assert pytest.main([str(inner), "-p", "no:cacheprovider"]) == 0
        def test_forked():
            if os.fork() == 0:
                return  # the copy goes on with pytest's work
            os.wait()
        """
    )
    ran = suite.run()
    outer = {"test_in_a_process": "passed", "test_here": "passed", "test_forked": "passed"}
    assert ran.statuses() == in_file("test_outer", outer), ran.text
    assert len(ran.events("session")) == len(ran.events("finish")) == 1
    assert len(ran.events("end")) == 3


@pytest.mark.parametrize("options", [[], ["-n", "1"]])
def test_tests_find_the_environment_that_they_would_have_without_it(suite, options):
    suite.write(
        test_environment="""
        import os
        def test_environment():
            assert os.environ.get("PYTHONPATH") == "src"
            assert "PYTEST_PLUGINS" not in os.environ
            assert not [name for name in os.environ if name.startswith("FAIRTRIAL")]
        """
    )
    ours = str(suite.plugins)
    for env in ({"PYTHONPATH": "src:" + ours}, {"PYTHONPATH": "src:" + ours, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}):
        if options and "PYTEST_DISABLE_PLUGIN_AUTOLOAD" in env:
            continue  # there is no xdist then
        ran = suite.run(*options, env=env, case_timeout_s=60)
        assert ran.statuses() == {"test_environment.py::test_environment": "passed"}, ran.text


def test_tests_that_patch_what_they_can_name_change_nothing(suite):
    suite.write(
        test_patches="""
        import os, json, time, sys
        def broken(*args, **kwargs):
            raise OSError("patched")
        def test_patch(record_value):
            record_value("x", 1)
            json.dumps = json.loads = os.open = os.write = os.close = time.monotonic = broken
            os.closerange(3, 50)
            sys.modules["fairtrial_cases"].os = sys.modules["fairtrial_cases"].time = None  # as pyfakefs, freezegun
        def test_after():
            pass
        """
    )
    ran = suite.run("-s", case_timeout_s=60)
    assert ran.statuses() == in_file("test_patches", {"test_patch": "passed", "test_after": "passed"}), ran.text


def test_only_the_last_attempt_counts(suite):
    if "rerunfailures" not in suite.run("--version", "--version").text:
        pytest.skip("pytest-rerunfailures is not there")
    suite.write(
        test_flaky="""
        seen = []
        def test_flaky(record_value):
            seen.append(1)
            record_value("attempt", len(seen))
            assert len(seen) == 2
        """
    )
    ran = suite.run("--reruns", "2")
    assert ran.statuses() == {"test_flaky.py::test_flaky": "passed"}, ran.text
    assert ran.values("test_flaky.py::test_flaky") == [["attempt", 2]]


def test_long_output_is_bounded_and_told_apart(suite):
    suite.write(
        test_loud="""
        import pytest
        @pytest.mark.parametrize("letter", ["a", "b"])
        def test_loud(letter):
            print("é" * 600_000 + letter + "é" * 600_000, end="")
        """
    )
    ran = suite.run()
    a, b = (ran.cases["test_loud.py::test_loud[%s]" % letter] for letter in "ab")
    assert a["stdout"] == b["stdout"] and len(a["stdout"].encode()) <= (1 << 20) + 8
    assert a["dropped"]["bytes"] == b["dropped"]["bytes"] == 2_400_001 - (1 << 20)
    assert a["dropped"]["sha256"] != b["dropped"]["sha256"]
