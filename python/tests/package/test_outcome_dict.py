"""`Outcome.to_dict`: what `--json` prints, as plain data."""

import base64
import json
import pickle

import pytest
import work

import fairtrial as ft
from fairtrial.outcomes import unstarted

# Those of docs/json.md.
KEYS = "id verdict value error exit stdout stderr dropped metrics in_force tried_alone".split()


def test_an_outcome_is_what_the_command_prints_as_json():
    """RE-14, EX-69"""
    source = """
    import sys
    def f():
        print("out"); print("err", file=sys.stderr)
        return {"tuple": (1, 2), "big": 2**70, "bytes": b"hi", "nan": float("nan"), "map": {1: None}}
    """
    outcome = ft.run(ft.Call(source=source.replace("\n    ", "\n"), function="f"))
    data = outcome.to_dict()
    assert list(data) == KEYS
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert (data["verdict"], data["stdout"], data["stderr"]) == ("ok", "out\n", "err\n")
    assert data["value"] == {
        "tuple": {"$tuple": [1, 2]},
        "big": 2**70,
        "bytes": {"$bytes": "aGk="},
        "nan": {"$float": "NaN"},
        "map": {"$map": [[1, None]]},
    }
    assert (data["error"], data["exit"], data["tried_alone"]) == (None, None, None)
    assert data["id"] == outcome.call_id
    assert data["metrics"]["peak_rss_bytes"] >= data["metrics"]["base_rss_bytes"] > 0
    assert data["in_force"]["digest"].startswith("sha256:")
    data["in_force"].clear()
    assert outcome.to_dict()["in_force"], "a copy"
    assert outcome.value["tuple"] == (1, 2), "still there"


def test_a_failure_has_its_error_and_its_exit():
    """EX-69"""
    failed = ft.run(ft.Call(source="def f(): return 1 / 0", function="f")).to_dict()
    assert (failed["verdict"], failed["value"], failed["error"]["type"]) == ("exception", None, "ZeroDivisionError")
    assert set(failed["error"]) == {"type", "message", "traceback"}
    assert ft.run(ft.Call(argv=["sh", "-c", "exit 3"])).to_dict()["exit"] == {"code": 3, "signal": None}
    killed = ft.run(ft.Call(argv=["sh", "-c", "kill -9 $$"])).to_dict()["exit"]
    assert killed == {"code": None, "signal": 9, "killed_by": "outside"}
    assert list(unstarted(ValueError("no")).to_dict()) == KEYS


def test_a_pickle_is_opened_only_where_its_maker_is_trusted():
    """EX-69"""
    source = "class Trap:\n    def __reduce__(self): return exec, ('raise SystemExit',)\ndef f(): return Trap()"
    outcome = ft.run(ft.Call(source=source, function="f", result="pickle"))
    closed = outcome.to_dict()["value"]
    assert list(closed) == ["$pickle"] and b"SystemExit" in base64.b64decode(closed["$pickle"])
    with pytest.raises(ValueError, match="unpickle"):
        outcome.value  # noqa: B018
    with ft.Executor(1) as executor:
        assert executor.submit(work.same, [1, (2,)]).outcome().to_dict()["value"] == [1, {"$tuple": [2]}]
        opened = executor.submit(work.same, work.same).outcome().to_dict()["value"]
        assert list(opened) == ["$pickle"] and pickle.dumps(work.same, 5) in base64.b64decode(opened["$pickle"])


def test_an_outcome_that_was_pickled_says_the_same():
    """EX-69"""
    outcome = ft.run(ft.Call(source="def f(): return {1}", function="f"))
    assert pickle.loads(pickle.dumps(outcome)).to_dict() == outcome.to_dict()
