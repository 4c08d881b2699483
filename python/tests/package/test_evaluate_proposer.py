"""Evaluations that ask for more candidates, from Python: CA-84, and what of CA-5 is about proposers."""

import signal
import sys
import threading

import pytest
from evaluated import BASE, INTERRUPTED, RIVALS, lasting
from support import WAIT_S, wait_until

import fairtrial as ft

SEARCH = {"repair": {"max_diff_share": "100%"}}


def test_a_function_proposes(project):
    """CA-84: it is told what was wrong, and what it says is evaluated like any other candidate"""
    project.rivals(RIVALS[1])
    requests = []

    def propose(request):
        requests.append(request)
        return {"candidates": [{"files": {"answer.sh": "echo 42\n"}, "note": "the other way round"}], "tokens": 7}

    report = ft.evaluate(project.spec(search=SEARCH), proposer=propose)
    repaired, wrong = report.evaluations
    assert (repaired.is_correct, repaired.origin, repaired.parent, repaired.generation) == (True, "repair", wrong.id, 2)
    (request,) = requests
    assert (request["kind"], [parent["id"] for parent in request["parents"]]) == ("repair", [wrong.id])
    assert request["parents"][0]["diffs"][0]["candidate"] == "41\n"
    assert request["base"]["sources"] == {"answer.sh": BASE}
    assert report.to_dict()["proposals"]["answered"] == 1
    again = ft.evaluate(project.spec(search=SEARCH), proposer=propose, resume=True)
    assert lasting(again) == lasting(report) and len(requests) == 1


def test_a_proposer_that_fails_changes_nothing_else(project, caplog):
    """CA-84, CA-86"""
    project.rivals(RIVALS[0], RIVALS[1])

    def fail(request):
        raise KeyError("no idea")

    for number, proposer in enumerate((fail, lambda request: {"candidates": [object()]}, lambda request: "42")):
        report = ft.evaluate(project.spec(search=SEARCH, output=f"results{number}"), proposer=proposer)
        assert [(one.name, one.state) for one in report.evaluations] == [("shorter", "done"), ("wrong", "failed")]
        assert report.to_dict()["proposals"]["failed"] == 1
    assert "KeyError: 'no idea'" in caplog.text
    assert "answer.candidates[0]: must be plain data, not object" in caplog.text


def test_a_proposer_that_hangs_is_not_asked_again(project):
    """CA-84, CA-87: nor waited for, though tests and races come after it"""
    project.rivals(RIVALS[0], RIVALS[1])
    asked, go = [], threading.Event()

    def hang(request):
        asked.append(request["id"])
        go.wait()

    search = SEARCH | {"proposer": {"timeout": 0.2}}
    try:
        report = ft.evaluate(project.spec(search=search), proposer=hang)
    finally:
        go.set()
    assert [(one.name, one.state) for one in report.evaluations] == [("shorter", "done"), ("wrong", "failed")]
    proposals = report.to_dict()["proposals"]
    assert (proposals["requests"], proposals["failed"], len(asked)) == (1, 1, 1)
    assert proposals["proposer_dead"] == "the proposer did not answer within 0.2 s"


def test_the_terms_of_a_function_name_nobody_to_ask(project):
    """CA-6: without a function they are not enough"""
    search = SEARCH | {"proposer": {"timeout": "10s"}}
    with pytest.raises(ValueError, match=r"search.proposer: `proposer` names nobody to ask"):
        ft.evaluate(project.spec(search=search))


PROPOSER = """
import json, sys
for line in sys.stdin:
    candidates = [{"files": {"answer.sh": "echo 42\\n"}}]
    print(json.dumps({"id": json.loads(line)["id"], "candidates": candidates}), flush=True)
"""


def test_a_program_that_proposes_is_found_from_where_paths_are_seen(project):
    """CA-4, CA-84"""
    project.rivals(RIVALS[1])
    (project.directory / "propose.py").write_text(PROPOSER)
    search = SEARCH | {"proposer": {"command": [sys.executable, "propose.py"]}}
    report = ft.evaluate(project.spec(search=search))
    assert [(one.origin, one.is_correct) for one in report.evaluations] == [("repair", True), ("given", False)]


def test_ctrl_c_ends_a_program_that_proposes(project, program):
    """CA-5, CA-41"""
    project.rivals(RIVALS[1])
    begun = project.directory / "begun"
    search = SEARCH | {"proposer": {"command": f"read request; touch {begun}; sleep 600"}}
    process = program.start(INTERRUPTED, str(project.file(search=search)))
    wait_until(begun.exists, what="the proposer's beginning")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert (out, err) == ("interrupted []\n", "")


def test_ctrl_c_does_not_wait_for_a_proposer(project, program):
    """CA-5"""
    project.rivals(RIVALS[1])
    ended = program(
        """
        import os, signal, sys, time
        import fairtrial as ft
        from support import descendants

        def propose(request):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(600)

        try:
            ft.evaluate(sys.argv[1], proposer=propose)
        except KeyboardInterrupt:
            print("interrupted", descendants())
        """,
        str(project.file(search=SEARCH)),
    )
    assert (ended.stdout, ended.stderr) == ("interrupted []\n", "")
