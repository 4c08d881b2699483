"""Section 6 of the package's requirements: values."""

import gc
import math
import os
import pickle
import sys
import threading
import weakref
from pathlib import Path

import pytest
import work
from support import WAIT_S, big, nameless_mappings, same

import fairtrial as ft

numpy = pytest.importorskip("numpy")

VALUES = [
    None,
    True,
    0,
    -(1 << 200),
    1.5,
    -0.0,
    math.inf,
    2 + 3j,
    "text",
    "\ud800 alone",
    b"bytes",
    bytearray(b"more"),
    [1, [2, []]],
    (1, (2,)),
    {1, 2},
    frozenset({3}),
    {"b": 1, "a": 2, 3: "x", (1, 2): None},
    numpy.float32(1.5),
    numpy.datetime64("2024-01-02"),
    numpy.arange(12).reshape(3, 4),
    numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
    numpy.zeros((0, 3)),
    numpy.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    numpy.array(["2024-01-01"], dtype="M8[D]"),
    {"nested": [numpy.ones(3), {"deep": (b"x", numpy.bool_(True))}]},
]


def agree(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, numpy.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(agree(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return math.copysign(1, a) == math.copysign(1, b) and a == b
    return a == b


@pytest.mark.parametrize("value", VALUES, ids=[f"{type(value).__name__}{at}" for at, value in enumerate(VALUES)])
def test_a_data_value_arrives_as_itself(value):
    """PY-45"""
    back = ft.run_code("def f(x): return x", "f", value, python=sys.executable)
    assert agree(value, back), back


def test_all_values_arrive_pickled_too(one):
    """PY-45"""
    for value in VALUES:
        assert agree(value, one.submit(work.same, value).result(WAIT_S))


def test_nan_arrives_as_nan():
    """PY-45"""
    assert math.isnan(ft.run_code("def f(x): return x", "f", math.nan))


def test_pickled_values_keep_identity_and_cycles(one):
    """PY-45"""
    shared = [1]
    back = one.submit(work.same, (shared, shared)).result(WAIT_S)
    assert back[0] is back[1]
    node = one.submit(work.Node).result(WAIT_S)
    assert node.itself is node


def test_without_numpy_an_array_is_a_memoryview(program):
    """PY-45"""
    ended = program(
        """
        import sys
        sys.modules["numpy"] = None
        import fairtrial as ft
        source = "import numpy\\ndef f(n): return numpy.arange(n, dtype='i4').reshape(2, -1)"
        scalar = "import numpy\\ndef f(): return numpy.float32(1.5), numpy.str_('text')"
        print(ft.run(ft.Call(source=scalar, function="f", python=sys.executable)).value)
        for n in (6, 100_000):
            view = ft.run(ft.Call(source=source, function="f", args=[n], python=sys.executable)).value
            print(type(view).__name__, view.format, view.shape, view[1, 0])
        """
    )
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["(1.5, 'text')", "memoryview i (2, 3) 3", "memoryview i (2, 50000) 50000"]


def anonymous_kilobytes():
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(text.partition("Private_Dirty:")[2].split()[0])


@pytest.mark.parametrize("kind", ["pickled", "data"])
def test_a_large_array_is_a_writable_view_without_a_copy(kind):
    """PY-46"""
    size = 100_000_000
    before = anonymous_kilobytes()
    if kind == "pickled":
        with ft.Executor(1) as executor:
            future = executor.submit(work.zeros_ending_in, size, 3)
            array = future.result(WAIT_S)
            del future
    else:
        source = "import numpy\ndef f(n):\n    a = numpy.zeros(n, 'u1')\n    a[-1] = 3\n    return a"
        outcome = ft.run(ft.Call(source=source, function="f", args=[size], python=sys.executable))
        array = outcome.value
        del outcome
        ft.shutdown()
    assert array[-1] == 3 and array.flags.writeable
    assert anonymous_kilobytes() - before < 30_000
    array[:1_000_000] = 7  # its executor, outcome and worker are gone
    assert array[999_999] == 7 and array[1_000_000] == 0


def test_a_large_array_is_released_with_its_last_view(one):
    """PY-46"""
    before = nameless_mappings()
    array = one.submit(work.zeros_ending_in, 10_000_000, 3).result(WAIT_S)
    assert nameless_mappings() == before + 1
    view = array[5:]
    del array
    gc.collect()
    assert nameless_mappings() == before + 1 and view[-1] == 3
    del view
    gc.collect()
    assert nameless_mappings() == before


def test_ten_thousand_arrays_leak_no_descriptor(two):
    """PY-46"""
    big(1 << 30)
    kept = list(two.map(work.zeros_ending_in, [70_000] * 200, [5] * 200))
    before = len(os.listdir("/proc/self/fd"))
    total = 0
    for at, array in enumerate(two.map(work.zeros_ending_in, [70_000] * 10_000, [5] * 10_000, buffersize=64)):
        total += int(array[-1])
        kept[at % 200] = array
    assert total == 50_000
    assert len(os.listdir("/proc/self/fd")) <= before + 64


def test_ten_thousand_arrays_can_be_kept_at_once(program):
    """PY-46: as many descriptors as before, whatever the limit"""
    big(2 << 30)
    ended = program(
        """
        import os, resource
        import fairtrial as ft, work
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        with ft.Executor(2) as executor:
            executor.submit(int).result()
            before = len(os.listdir("/proc/self/fd"))
            kept = list(executor.map(work.zeros_ending_in, [70_000] * 10_000, [5] * 10_000, buffersize=32))
            print(len(kept), sum(int(array[-1]) for array in kept), len(os.listdir("/proc/self/fd")) - before <= 40)
        """,
        timeout=120,
    )
    assert (ended.stdout, ended.stderr) == ("10000 50000 True\n", "")


def test_small_arrays_are_writable_too(one):
    """PY-46"""
    array = one.submit(work.zeros_ending_in, 10, 3).result(WAIT_S)
    array[0] = 1
    large_enough = one.submit(work.zeros_ending_in, 6000, 3).result(WAIT_S)
    large_enough[0] = 1
    data = ft.run_code("import numpy\ndef f(): return numpy.zeros(9)", "f", python=sys.executable)
    data[0] = 1


def test_a_value_is_decoded_once_on_first_access(one, monkeypatch):
    """PY-47"""
    import fairtrial._values as values

    decoded = []
    decode = values.decode
    monkeypatch.setattr(values, "decode", lambda *body: (decoded.append(threading.get_ident()), decode(*body))[1])
    outcome = ft.run(ft.Call(source="def f(): return [1]", function="f"))
    assert decoded == []
    results = []
    thread = threading.Thread(target=lambda: results.append(outcome.value))
    thread.start()
    thread.join(WAIT_S)
    assert outcome.value is results[0]
    assert decoded == [thread.ident]


def test_a_data_value_runs_no_foreign_code():
    """PY-47"""
    outcome = ft.run(ft.Call(source="import os\nclass C(list): pass\ndef f(): return C([1])", function="f"))
    assert type(outcome.value) is list


STRANGER = """
import os
class Sly:
    def __init__(self, path): self.path = path
    def __reduce__(self): return os.mkdir, (self.path,)
def f(path): return Sly(path)
"""


def test_a_strangers_pickle_stays_closed_until_told(tmp_path):
    """PY-47"""
    path = str(tmp_path / "made")
    outcome = ft.run(ft.Call(source=STRANGER, function="f", args=[path], result="pickle"))
    assert outcome.ok
    for _ in range(2):
        with pytest.raises(ValueError, match="unpickle"):
            outcome.value  # noqa: B018
    assert not os.path.exists(path)
    carried = pickle.loads(pickle.dumps(outcome))
    assert not os.path.exists(path), "nor does sending it on open it"
    with pytest.raises(ValueError, match="unpickle"):
        carried.value  # noqa: B018
    assert outcome.unpickle() is None
    assert os.path.isdir(path)
    assert outcome.value is None, "once opened it is open"


def test_an_outcome_keeps_its_value_when_it_travels():
    """PY-47"""
    outcome = ft.run(ft.Call(source="def f(): print('said'); return {'a': [1, 2]}", function="f"))
    again = pickle.loads(pickle.dumps(outcome))
    assert (again.value, again.stdout, again.verdict) == ({"a": [1, 2]}, "said\n", "ok")
    assert again.metrics == outcome.metrics and again.in_force == outcome.in_force


def test_outcomes_do_not_keep_what_was_asked_for(one):
    """PY-46"""
    future = one.submit(work.Plain)
    reference = weakref.ref(future.result(WAIT_S))
    del future
    gc.collect()
    assert reference() is None


def test_values_travel_in_both_directions():
    """PY-45"""
    value = {"a": numpy.arange(5), "b": work.Plain()}
    back = same(value)
    assert (back["a"] == value["a"]).all() and back["b"] == value["b"]
