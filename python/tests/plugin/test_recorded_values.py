"""The fixture `record_value` and the form of what it records. CA-48, CA-51"""

import base64
import struct

import pytest

VALUES = """
    import collections, dataclasses, decimal, enum, pathlib, array
    import pytest

    class Bare:
        def __init__(self):
            self.x = 0.1

    class Silent:
        __slots__ = ()

    class Raising:
        def __repr__(self):
            raise RuntimeError("no")

    @dataclasses.dataclass
    class Point:
        x: float

    class Colour(enum.IntEnum):
        RED = 1

    class Name(str):
        pass

    class Own(ValueError):
        pass

    Pair = collections.namedtuple("Pair", "a b")
    loop = [1]
    loop.append(loop)
    deep = []
    for _ in range(1000):
        deep = [deep]

    def test_values(record_value):
        for name, value in {
            "none": None, "true": True, "int": 3, "big": 1 << 70, "negative": -(1 << 70), "most": (1 << 63) - 1,
            "float": 0.1 + 0.2, "least": 5e-324, "nan": float("nan"), "inf": float("-inf"), "zero": -0.0,
            "complex": 1 + 2j, "text": "é\\n", "lone": "\\udc80", "bytes": b"\\x00\\xff", "array": bytearray(b"a"),
            "list": [1, [2]], "tuple": (1, "a"), "dict": {1: "a", "b": (2,)}, "set": {1}, "frozen": frozenset(),
            "error": Own("bad"), "key": KeyError("k"), "bare": Bare(), "silent": Silent(), "raising": Raising(),
            "point": Point(1.5), "colour": Colour.RED, "name": Name("n"), "pair": Pair(1, 2.5),
            "ordered": collections.OrderedDict(a=1), "decimal": decimal.Decimal("1.50"),
            "path": pathlib.PurePosixPath("/a"), "function": len, "type": int, "loop": loop,
        }.items():
            record_value(name, value)
        record_value("deep", deep)
        changed = [1]
        record_value("changed", changed)
        changed.append(2)
        record_value("changed", changed)

    def test_large(record_value):
        record_value("large", list(range(1_000_000)))

    def test_many(record_value):
        for _ in range(4):
            record_value("many", "x" * 3_000_000)
        record_value("small", 1)
"""

EXPECTED = {
    "none": None,
    "true": True,
    "int": 3,
    "big": {"int": "0x400000000000000000"},
    "negative": {"int": "-0x400000000000000000"},
    "most": (1 << 63) - 1,
    "float": 0.1 + 0.2,
    "least": 5e-324,
    "nan": {"float": "nan"},
    "inf": {"float": "-inf"},
    "zero": -0.0,
    "complex": {"complex": [1.0, 2.0]},
    "text": "é\n",
    "lone": {"surrogates": "7bKA"},
    "bytes": {"bytes": "AP8="},
    "array": {"bytearray": "YQ=="},
    "list": [1, [2]],
    "tuple": {"tuple": [1, "a"]},
    "dict": {"dict": [[1, "a"], ["b", {"tuple": [2]}]]},
    "set": {"set": [1]},
    "frozen": {"frozenset": []},
    "error": {"exception": ["test_values.Own", "bad"]},
    "key": {"exception": ["KeyError", "'k'"]},
    "bare": {"object": ["test_values.Bare", [["x", 0.1]]]},
    "silent": {"repr": ["test_values.Silent", "<test_values.Silent object>"]},
    "raising": {"repr": ["test_values.Raising", "<repr raised RuntimeError>"]},
    "point": {"object": ["test_values.Point", [["x", 1.5]]]},
    "colour": {"repr": ["test_values.Colour", "<Colour.RED: 1>"]},
    "name": {"subclass": ["test_values.Name", "n"]},
    "pair": {"subclass": ["test_values.Pair", {"tuple": [1, 2.5]}]},
    "ordered": {"subclass": ["collections.OrderedDict", {"dict": [["a", 1]]}]},
    "decimal": {"repr": ["decimal.Decimal", "Decimal('1.50')"]},
    "path": {"repr": ["pathlib.PurePosixPath", "PurePosixPath('/a')"]},
    "function": {"repr": ["builtin_function_or_method", "<built-in function len>"]},
    "type": {"repr": ["type", "<class 'int'>"]},
    "loop": [1, {"cycle": 1}],
}


@pytest.mark.parametrize("options", [[], ["-n", "1"]])
def test_values_have_the_form_that_is_compared(suite, options):
    ran = suite.write(test_values=VALUES).run(*options)
    recorded = ran.values("test_values.py::test_values")
    values = dict(recorded)
    assert {name: values[name] for name in EXPECTED} == EXPECTED
    assert repr(values["zero"]) == "-0.0"
    assert [value for name, value in recorded if name == "changed"] == [[1], [1, 2]]
    depth, deep = 0, values["deep"]
    while isinstance(deep, list):
        depth, deep = depth + 1, deep[0]
    assert depth == 24 and deep["repr"][0] == "list"
    [[_, large]] = ran.values("test_values.py::test_large")
    assert large["large"]["type"] == "list" and len(large["large"]["sha256"]) == 64
    many = [type(value) for _, value in ran.values("test_values.py::test_many")]
    assert many == [str, str, dict, dict, int]


ARRAYS = """
    import numpy as np
    def test_arrays(record_value):
        record_value("f8", np.array([[1.5, np.nan]]))
        record_value("f4", np.array([0.5], dtype=">f4"))
        record_value("scalar", np.float64(2.5))
        record_value("ints", np.array([1, 2], dtype=np.int16))
        record_value("bools", np.array([True]))
        record_value("texts", np.array(["a"]))
        record_value("objects", np.array([None, 1], dtype=object))
        record_value("complex", np.array([1j]))
        record_value("times", np.array(["2020-01-01"], dtype="datetime64[D]"))
        record_value("strided", np.arange(6)[::2].astype("<i8"))
        record_value("none", np.zeros((0, 2)))
"""


def test_arrays_keep_type_shape_and_bits(suite):
    ran = suite.write(test_arrays=ARRAYS).run()
    if ran.code and "No module named 'numpy'" in ran.text:
        pytest.skip("numpy is not there")
    values = dict(ran.values("test_arrays.py::test_arrays"))

    def data(layout, *numbers):
        return base64.b64encode(struct.pack("<" + layout, *numbers)).decode()

    [first, second] = struct.unpack("<2d", base64.b64decode(values["f8"]["floats"].pop("data")))
    assert (first, second != second) == (1.5, True)
    assert values["f8"] == {"floats": {"dtype": "float64", "shape": [1, 2]}}
    assert values["f4"] == {"floats": {"dtype": ">f4", "shape": [1], "data": data("d", 0.5)}}
    assert values["scalar"] == {"floats": {"dtype": "scalar float64", "shape": [], "data": data("d", 2.5)}}
    assert values["ints"] == {"array": {"dtype": "int16", "shape": [2], "data": data("2h", 1, 2)}}
    assert values["bools"] == {"array": {"dtype": "bool", "shape": [1], "data": data("?", True)}}
    assert values["texts"] == {"items": {"dtype": "<U1", "shape": [1], "items": ["a"]}}
    assert values["objects"] == {"items": {"dtype": "object", "shape": [2], "items": [None, 1]}}
    assert values["complex"] == {"floats": {"dtype": "complex128", "shape": [1], "data": data("2d", 0, 1)}}
    assert values["times"] == {"array": {"dtype": "datetime64[D]", "shape": [1], "data": data("q", 18262)}}
    assert values["strided"] == {"array": {"dtype": "int64", "shape": [3], "data": data("3q", 0, 2, 4)}}
    assert values["none"] == {"floats": {"dtype": "float64", "shape": [0, 2], "data": ""}}
