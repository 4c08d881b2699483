"""Memory of preloads that stays shared because it was asked for."""

import pytest

import fairtrial as ft

SOURCE = """
import table

def count():
    table.COUNTER[0] += 1
    return table.COUNTER[0]
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A module `table` that holds shared memory, on the path of workers."""
    (tmp_path / "table.py").write_text("import mmap\nCOUNTER = mmap.mmap(-1, 4096)\n")
    return {"PYTHONPATH": str(tmp_path)}


def test_calls_share_it_and_outcomes_say_so(table):
    """FA-3"""
    with ft.LocalBackend() as backend:
        call = ft.Call(source=SOURCE, function="count", preload=["table"], preload_shared=["table"], env=table)
        outcomes = [ft.run(call, backend) for _ in range(3)]
        assert [outcome.value for outcome in outcomes] == [1, 2, 3]
        assert outcomes[0].to_dict()["in_force"]["preload_shared"] == ["table"]
        private = ft.run(ft.Call(source=SOURCE, function="count", preload=["table"], env=table), backend)
        assert private.value == 1
        assert "preload_shared" not in private.to_dict()["in_force"]


def test_only_what_is_preloaded_can_be_shared():
    """FA-3"""
    with pytest.raises(ValueError, match=r"`preload_shared`: `table` is not a module of `preload`"):
        ft.Call(source=SOURCE, function="count", preload_shared=["table"])
    with pytest.raises(ValueError, match="preload_shared"):
        ft.Executor(1, preload_shared=["table"])
    with pytest.raises(ValueError, match="`preload_shared` is a list, not a text"):
        ft.Call(source=SOURCE, function="count", preload_shared="table")
