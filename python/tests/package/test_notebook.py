"""The package in a Jupyter notebook: a real kernel runs the cells, and a client reads what they give."""

import json
import subprocess
import sys
import textwrap

import pytest
from support import HERE, WAIT_S, environment

pytest.importorskip("ipykernel", reason="a notebook is run on one version: ipykernel is in the main environment only")
pytest.importorskip("nbclient", reason="a notebook is run on one version: nbclient is in the main environment only")


def cell(source, *gates):
    return {"source": textwrap.dedent(source).strip(), "gates": [gate.path for gate in gates]}


@pytest.fixture
def notebook(tmp_path):
    """Runs cells to their end, and gives what each showed."""

    def run(*cells):
        places = {name: str(tmp_path / name) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
        command = [sys.executable, str(HERE / "notebook_host.py"), json.dumps(cells)]
        # Its end is waited for longer than it waits for anything itself.
        ended = subprocess.run(
            command, env=environment(**places), cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S * 6
        )
        assert ended.returncode == 0, ended.stderr
        return [[tuple(output) for output in json.loads(line)] for line in ended.stdout.splitlines()]

    return run


def test_a_notebook_runs(notebook, gates):
    """PY-30, PY-32, PY-37, PY-49"""
    first, second = gates(), gates()
    shown = notebook(
        cell("import fairtrial as ft, work\nex = ft.Executor(2)"),
        cell("def f(x): return x + 1"),
        cell("list(ex.map(f, range(3)))"),
        cell("def f(x): return x * FACTOR"),
        cell("FACTOR = 10"),
        cell("list(ex.map(f, range(3)))"),
        cell(
            """
            class Point:
                def __init__(self, x): self.x = x
                def moved(self): return Point(self.x + 1)
            back = ex.submit(Point.moved, Point(1)).result()
            type(back) is Point, back.x
            """
        ),
        cell(
            """
            def speak(words):
                print("says", words)
            with ex:  # whose end waits for what its workers wrote
                ex.submit(speak, "a worker").result()
            """
        ),
        cell("(await ft.arun(ft.Call(source='def f(x): return x + 1', function='f', args=[1]))).value"),
        cell("ft.shutdown()"),
        cell(
            f"""
            with ft.Executor(2) as held:
                list(held.map(work.pass_gate, {[first.path, second.path]}))
            """,
            first,
            second,
        ),
        cell("with ft.Executor(1) as ex: back = ex.submit(f, 5).result()\nback"),
    )
    assert shown == [
        [],
        [],
        [("value", "[1, 2, 3]")],
        [],
        [],
        [("value", "[0, 10, 20]")],
        [("value", "(True, 2)")],
        [("stdout", "says a worker\n")],
        [("value", "2")],
        [],
        [("error", "KeyboardInterrupt")],
        [("value", "50")],
    ]


EVALUATED = """
import fairtrial as ft, json, pathlib
pathlib.Path("repo").mkdir(exist_ok=True)
pathlib.Path("repo", "answer.sh").write_text("echo 42")
begin = "echo $$ > {gate}.new; mv {gate}.new {gate}.begun; while [ ! -e {gate}.open ]; do sleep 0.01; done; "
for name, text in (("same.jsonl", "echo $((6 * 7))"), ("waits.jsonl", begin + "echo 42")):
    pathlib.Path(name).write_text(json.dumps({{"name": name, "files": {{"answer.sh": text}}}}))
def evaluate(rivals, **options):
    tests = [{{"command": "sh answer.sh", "output": "compare", "timeout": 60}}]
    spec = {{"version": 1, "repo": "repo", "candidates": {{"jsonl": rivals}}, "tests": tests, "sandbox": "none"}}
    return ft.evaluate(spec | {{"output": "for-" + rivals}}, **options)
"""


def test_a_notebook_evaluates(notebook, gate, tmp_path, monkeypatch):
    """CA-5: beside the kernel's loop; what the observer prints is shown below the cell, and the button ends all"""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shown = notebook(
        cell(EVALUATED.format(gate=gate.path)),
        cell("evaluate('same.jsonl', on_event=lambda told: print(told['event']) if told['event'] == 'done' else None)"),
        cell("evaluate('waits.jsonl')", gate),
    )
    assert shown == [
        [],
        [("stdout", "done\n"), ("value", "<EvaluationReport of 1 candidates, 1 correct, no winner>")],
        [("error", "KeyboardInterrupt")],
    ]
