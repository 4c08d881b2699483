"""Values: what goes in comes out, by every backend (CL-74)."""

import math
import os

import pytest
from conftest import wait_until

import fairtrial as ft

SAME = "def f(*args, **kwargs): return args[0] if args else kwargs"
VALUES = [None, True, 0, -(1 << 200), 1.5, math.inf, 2 + 3j, "text", "é\n\0", b"bytes", [1, [2, []]], (1, (2,)), {1, 2}]
NESTED = {"b": [1, {"a": (b"x", None)}], 3: {"deep": [[[]]]}, (1, 2): "key"}


def same(backend, *args, **kwargs):
    outcome = backend.execute(ft.Call(source=SAME, function="f", args=args, kwargs=kwargs))
    assert outcome.verdict == "ok", outcome.error
    return outcome.value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}-{str(value)[:8]!a}")
def test_a_scalar_or_collection_arrives_as_itself(backend, value):
    """CL-74"""
    back = same(backend, value)
    assert (type(back), back) == (type(value), value)


def test_nested_values_arrive_as_themselves(backend):
    """CL-74"""
    assert same(backend, NESTED) == NESTED


def test_keyword_arguments_arrive_under_their_names(backend):
    """CL-74"""
    assert same(backend, a=1, b=[2]) == {"a": 1, "b": [2]}


@pytest.mark.parametrize("size", [1_000, 20_000, 70_000, 3_000_000])
def test_bytes_of_any_size_arrive_as_themselves(backend, size):
    """CL-13, CL-74: in the message, beside it, and too large for one in each direction."""
    data = os.urandom(size)
    assert same(backend, data) == data


def test_arrays_arrive_as_themselves_and_can_be_written_to(backend):
    """CL-74"""
    import numpy

    for array in (numpy.arange(12).reshape(3, 4), numpy.ones(1_000_000)):
        back = same(backend, array)
        assert (back.dtype, back.shape) == (array.dtype, array.shape)
        assert (back == array).all()
        back[0] = 7


def test_two_hundred_megabytes_come_back(backend):
    """CL-54, CL-67, CL-74"""
    size = 200_000_000
    call = ft.Call(source="def f(n): return b'x' * n", function="f", args=[size])
    value = backend.execute(call).value
    assert len(value) == size and value == b"x" * size


def test_two_hundred_megabytes_go_in(backend):
    """CL-67, CL-74"""
    data = os.urandom(1_000_000) * 200
    call = ft.Call(source="def f(x): return len(x), x[-5:]", function="f", args=[data])
    assert backend.execute(call).value == (len(data), data[-5:])


def test_a_large_source_is_run(backend):
    """CL-13, CL-74"""
    source = f"TEXT = {'y' * 100_000!r}\ndef f(): return len(TEXT)"
    assert backend.execute(ft.Call(source=source, function="f")).value == 100_000


def test_a_pickled_value_is_opened_by_whoever_asks_for_it_and_by_nobody_else(backend, tmp_path):
    """CL-49, CL-67, CL-74: nothing is decoded unasked."""
    source = (
        "import os\n"
        "class Trap:\n"
        "    def __init__(self, place): self.place = place\n"
        "    def __reduce__(self): return os.mkdir, (self.place,)\n"
        "def f(place): return Trap(place)\n"
    )
    place = tmp_path / "sprung"
    outcome = backend.execute(ft.Call(source=source, function="f", args=[str(place)], result="pickle"))
    assert outcome.verdict == "ok"
    with pytest.raises(ValueError, match="unpickle"):
        outcome.value  # noqa: B018
    assert not place.exists()
    outcome.unpickle()
    assert place.exists()


def test_pickled_values_keep_what_data_cannot(backend):
    """CL-74"""
    source = "import fractions\ndef f(): return fractions.Fraction(1, 3)"
    outcome = backend.execute(ft.Call(source=source, function="f", result="pickle"))
    assert outcome.unpickle().denominator == 3


def test_a_commands_input_and_output_are_bytes_of_any_kind(backend):
    """CL-74"""
    text = "é" * 50_000
    outcome = backend.execute(ft.Call(argv=["cat"], stdin=text))
    assert (outcome.verdict, outcome.stdout, outcome.exit.code) == ("ok", text, 0)


def test_output_is_kept_within_its_bounds_and_the_rest_is_counted(backend):
    """CL-74"""
    call = ft.Call(source="def f(): print('z' * 99_999)", function="f", capture_bytes=1000)
    outcome = backend.execute(call)
    assert len(outcome.stdout.encode()) <= 1200
    assert outcome.dropped["stdout"] >= 99_000


def test_a_directory_to_import_from_is_there(backend, tmp_path):
    """CL-42, CL-74: and as it is at each call."""
    module = tmp_path / "library" / "helper_of_conformance.py"
    module.parent.mkdir()
    call = {"source": "import helper_of_conformance as h\ndef f(): return h.X", "function": "f"}
    for value in (1, 22):
        module.write_text(f"X = {value}")
        # What was packed is taken to be as it was for a second.
        wait_until(lambda value=value: backend.execute(ft.Call(**call, python_path=[module.parent])).value == value)
