"""Writes `crates/fairtrial-exec/testdata/values.json`: what both halves of the data codec must agree on.

Each vector has the bytes (hex), the Python value as text that `evaluate` reads back, and the JSON form. The JSON is
written here by hand, not by the code under test. Run with a Python that has numpy:

    python python/tests/value_vectors.py
"""

import base64
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "crates" / "fairtrial-exec" / "testdata" / "values.json"


def b64(data):
    return base64.b64encode(data).decode()


def array(dtype, shape, data):
    return {"$array": {"dtype": dtype, "shape": shape, "base64": b64(data)}}


def nan(bits):
    return "struct.unpack('<d', bytes.fromhex('%s')[::-1])[0]" % bits


# Expressions, and the JSON form that gives the same bytes back.
PLAIN = [
    ("None", None),
    ("True", True),
    ("False", False),
    ("0", 0),
    ("-1", -1),
    ("2**63 - 1", 2**63 - 1),
    ("-2**63", -(2**63)),
    ("2**63", 2**63),
    ("2**64 - 1", 2**64 - 1),
    ("2**64", 2**64),
    ("-2**63 - 1", -(2**63) - 1),
    ("10**30", 10**30),
    ("-10**30", -(10**30)),
    ("10**3999", 10**3999),
    ("10**4000", {"$int": "1" + "0" * 4000}),
    ("-10**5000", {"$int": "-1" + "0" * 5000}),
    ("1.5", 1.5),
    ("1.0", 1.0),
    ("-0.0", -0.0),
    ("0.1", 0.1),
    ("1e300", 1e300),
    ("5e-324", 5e-324),
    ("float('nan')", {"$float": "NaN"}),
    (nan("7ff8000000000001"), {"$float": "7ff8000000000001"}),
    (nan("fff8000000000000"), {"$float": "fff8000000000000"}),
    ("float('inf')", {"$float": "Infinity"}),
    ("float('-inf')", {"$float": "-Infinity"}),
    ("1+2j", {"$complex": [1.0, 2.0]}),
    ("complex(-0.0, float('inf'))", {"$complex": [-0.0, {"$float": "Infinity"}]}),
    ("''", ""),
    ("'h\\xe9 \\U0001f600 \\n\\x00\"'", 'h\xe9 \U0001f600 \n\0"'),
    ("'x' * 255", "x" * 255),
    ("'x' * 256", "x" * 256),
    ("'a\\ud800b'", {"$str": b64("a\ud800b".encode("utf-8", "surrogatepass"))}),
    ("'\\ud83d\\ude00'", {"$str": b64("\ud83d\ude00".encode("utf-8", "surrogatepass"))}),
    ("b''", {"$bytes": ""}),
    ("b'\\x00\\xff'", {"$bytes": b64(b"\0\xff")}),
    ("[]", []),
    ("[None, [True], 'x']", [None, [True], "x"]),
    ("list(range(8))", list(range(8))),
    ("list(range(9))", list(range(9))),
    ("[0.5] * 9", [0.5] * 9),
    ("[float('nan')] * 9", [{"$float": "NaN"}] * 9),
    ("[2**70] * 9", [2**70] * 9),
    ("[1, 2.0] * 5", [1, 2.0] * 5),
    ("[True] * 9", [True] * 9),
    ("()", {"$tuple": []}),
    ("(1, (2,))", {"$tuple": [1, {"$tuple": [2]}]}),
    ("set()", {"$set": []}),
    ("{1}", {"$set": [1]}),
    ("frozenset([(1, 'a')])", {"$frozenset": [{"$tuple": [1, "a"]}]}),
    ("{}", {}),
    ("{'b': 1, 'a': [{}]}", {"b": 1, "a": [{}]}),
    ("{'$a': 1}", {"$map": [["$a", 1]]}),
    ("{'\\ud800': 1}", {"$map": [[{"$str": b64("\ud800".encode("utf-8", "surrogatepass"))}, 1]]}),
    ("{1: 'x', 'a': 2.0, (1, None): []}", {"$map": [[1, "x"], ["a", 2.0], [{"$tuple": [1, None]}, []]]}),
    ("{'k' * 300: 1}", {"k" * 300: 1}),
]

STRUCT = {"names": ["a", "b"], "formats": ["<i4", ["<f8", [2]]], "offsets": [0, 4], "itemsize": 20}
SWAPPED = {"names": ["c", "a"], "formats": ["|u1", "<i4"], "offsets": [12, 0], "itemsize": 13}
ALIGNED = {"names": ["a", "b"], "formats": ["|u1", "<f8"], "offsets": [0, 8], "itemsize": 16, "aligned": True}
TITLED = {"names": ["a"], "formats": ["<i4"], "offsets": [0], "itemsize": 4, "titles": ["t"]}

NUMPY = [
    ("np.arange(3.0)", array("<f8", [3], bytes.fromhex("0000000000000000000000000000f03f0000000000000040"))),
    ("['pad', np.arange(2, dtype='>i2')]", ["pad", array(">i2", [2], b"\0\0\0\1")]),
    ("np.array(5, dtype='<i8')", array("<i8", [], b"\5" + bytes(7))),
    ("np.zeros((0, 3), dtype='<f4')", array("<f4", [0, 3], b"")),
    ("np.array(['ab', 'c'])", array("<U2", [2], "abc\0".encode("utf-32-le"))),
    ("np.array([b'abc', b'd'])", array("|S3", [2], b"abcd\0\0")),
    ("np.array(['1970-01-02'], dtype='M8[D]')", array("<M8[D]", [1], b"\1" + bytes(7))),
    ("np.zeros(2, dtype=[('a', '<i4'), ('b', '<f8', (2,))])", array(STRUCT, [2], bytes(40))),
    ("np.zeros(1, dtype=[('a', '<i4'), ('b', '<f8'), ('c', 'u1')])[['c', 'a']]", array(SWAPPED, [1], bytes(13))),
    ("np.zeros(1, dtype=np.dtype([('a', 'u1'), ('b', '<f8')], align=True))", array(ALIGNED, [1], bytes(16))),
    ("np.zeros(1, dtype=[(('t', 'a'), '<i4')])", array(TITLED, [1], bytes(4))),
    ("np.array([True, False])", array("|b1", [2], b"\1\0")),
]

# Values whose JSON form is an equal value of another type, so it does not give the same bytes back.
ONE_WAY = [
    ("bytearray(b'x')", {"$bytes": b64(b"x")}),
    ("np.asfortranarray(np.arange(6, dtype='u1').reshape(2, 3))", array("|u1", [2, 3], bytes(range(6)))),
    (
        "np.arange(24, dtype='<u2').reshape(2, 3, 4).copy(order='F')",
        array("<u2", [2, 3, 4], b"".join(bytes((n, 0)) for n in range(24))),
    ),
    ("np.float64(1.5)", 1.5),
    ("np.float64('nan')", {"$float": "NaN"}),
    ("np.float32(0.1)", 0.10000000149011612),
    ("np.float16(-0.5)", -0.5),
    ("np.float16(6e-8)", 5.960464477539063e-08),
    ("np.float16('inf')", {"$float": "Infinity"}),
    ("np.int8(-3)", -3),
    ("np.uint64(2**64 - 1)", 2**64 - 1),
    ("np.array([-2], dtype='>i4')[0]", -2),
    ("np.bool_(True)", True),
    ("np.complex64(1 + 2j)", {"$complex": [1.0, 2.0]}),
    ("np.str_('h\\xe9')", "h\xe9"),
    ("np.bytes_(b'a\\x00')", {"$bytes": b64(b"a\0")}),
    ("np.datetime64('1970-01-02')", array("<M8[D]", [], b"\1" + bytes(7))),
    ("np.void(b'abc')", array("|V3", [], b"abc")),
]


def evaluate(text):
    """The value of a vector's expression."""
    import struct

    scope = {"struct": struct}
    if "np." in text:
        import numpy

        scope["np"] = numpy
    return eval(text, scope)


def main():
    sys.path.insert(0, str(HERE.parent / "fairtrial" / "_shim"))
    import codec

    vectors = []
    for rows, exact in ((PLAIN, True), (NUMPY, True), (ONE_WAY, False)):
        for text, form in rows:
            data = b"".join(codec.encode(evaluate(text)))
            vectors.append({"python": text, "json": json.dumps(form), "hex": data.hex(), "exact": exact})
    lines = ",\n".join(json.dumps(vector) for vector in vectors)
    TARGET.write_text("[\n%s\n]\n" % lines)


if __name__ == "__main__":
    main()
