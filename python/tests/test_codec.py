"""The worker's half of the data codec."""

import collections
import enum
import importlib.util
import json
import math
import pathlib
import random
import struct
import subprocess
import sys

import pytest
from value_vectors import TARGET, evaluate

CODEC = pathlib.Path(__file__).resolve().parents[1] / "fairtrial" / "_shim" / "codec.py"


def load():
    """The codec as the shim has it: alone, outside any package."""
    spec = importlib.util.spec_from_file_location("_codec_under_test", CODEC)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


codec = load()
VECTORS = json.loads(TARGET.read_text())


def encoded(value):
    return b"".join(codec.encode(value))


def round_trip(value):
    return codec.decode(encoded(value))


def same(a, b):
    """Equal in type and in every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and type(a) is float:
        return struct.pack("<d", a) == struct.pack("<d", b)
    if type(a) is complex:
        return same(a.real, b.real) and same(a.imag, b.imag)
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) is dict:
        return same(list(a.items()), list(b.items()))
    if hasattr(a, "dtype"):
        shape = (a.dtype, a.shape) == (b.dtype, b.shape)
        return shape and a.tobytes() == b.tobytes()
    return a == b


def refused(value):
    with pytest.raises(codec.Unencodable) as caught:
        codec.encode(value)
    return str(caught.value)


def function():
    pass


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["python"][:60])
def test_both_halves_agree_on_every_vector(vector):
    """EX-65"""
    if "np." in vector["python"]:
        pytest.importorskip("numpy", reason="numpy is not installed")
    value = evaluate(vector["python"])
    data = bytes.fromhex(vector["hex"])
    if type(value).__name__ not in ("void", "ndarray"):  # padding of a struct is not defined
        assert encoded(value) == data
    assert same(codec.decode(data), value)
    assert same(codec.decode(bytearray(data)), value)
    assert same(round_trip([value, (value,)]), [value, (value,)])


def test_subclasses_travel_as_their_base():
    """EX-65"""
    Point = collections.namedtuple("Point", "x y")
    Colour = enum.IntEnum("Colour", "red green")
    default = collections.defaultdict(list, a=[1])
    assert same(round_trip(Point(1, Colour.green)), (1, 2))
    assert same(round_trip(default), {"a": [1]})
    assert same(round_trip(collections.Counter("aab")), {"a": 2, "b": 1})
    for base, value in [(str, "a"), (bytes, b"a"), (float, 1.5), (list, [1]), (complex, 1j), (bytearray, b"x")]:
        assert same(round_trip(type("Sub", (base,), {})(value)), base(value))
    for base in (set, frozenset):
        assert same(round_trip(type("Sub", (base,), {})([1])), base([1]))


def test_an_ordered_dict_keeps_its_own_order():
    """EX-65"""
    value = collections.OrderedDict(a=1, b=2)
    value.move_to_end("a")
    assert same(round_trip(value), {"b": 2, "a": 1})


def test_encoding_calls_no_method_of_a_subclass():
    """EX-65"""

    def lie(*args, **kwargs):
        raise AssertionError("called")

    names = "__iter__ __len__ __getitem__ __eq__ __bool__ __int__ __index__ __float__ __str__ __repr__ __bytes__"
    names += " keys values items encode to_bytes bit_length copy real __complex__ __buffer__"
    liars = dict.fromkeys(names.split(), lie)
    liars["__hash__"] = lambda self: 0
    for base, value in [(str, "a"), (bytes, b"a"), (float, 1.5), (int, 7), (int, 2**70), (complex, 1j)]:
        assert same(round_trip(type("Liar", (base,), liars)(value)), base(value))
    for base, value in [(list, [1]), (tuple, (1,)), (dict, {"a": 1}), (set, {1}), (frozenset, {1})]:
        liar = base.__new__(type("Liar", (base,), liars), *([value] if base in (tuple, frozenset) else []))
        if base not in (tuple, frozenset):
            base.__init__(liar, value)
        assert same(round_trip([liar]), [base(value)])


def test_what_is_not_data_is_refused_by_its_path():
    """EX-66"""
    message = refused({"items": [0, 1, 2, {"fn": function}]})
    assert message.startswith("$.items[3].fn: function")
    assert 'result="pickle"' in message
    assert refused(function).startswith("$: function")
    assert refused({"a b": (1, {2: object()})}).startswith("$['a b'][1][2]: object")
    assert refused({(1, function): 2}).startswith("${key 0}[1]: function")
    assert refused([{function}]).startswith("$[0]{item}: function")
    assert refused([1, 2, 3, 4, 5, 6, 7, 8, 9, 10j, range(3)]).startswith("$[10]: range")


def test_a_cycle_is_refused_by_its_path():
    """EX-66"""
    value = {"data": [0.5] * 100, "list": []}
    value["list"].append((1, value))
    assert refused(value).startswith("$.list[0][1]: cycle")


def test_what_is_shared_is_no_cycle():
    """EX-66"""
    shared = [1, "x"]
    assert same(round_trip([shared, {"a": shared}]), [shared, {"a": shared}])


def nested(levels, wrap=lambda value: [value]):
    value = []
    for _ in range(levels - 1):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: {1: v}])
def test_a_thousand_levels_pass_and_one_more_is_refused(wrap):
    """EX-66"""
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(120)
        data = encoded(nested(1000, wrap))
        codec.decode(data)
        assert "over 1000 levels" in refused(nested(1001, wrap))
    finally:
        sys.setrecursionlimit(before)
    head = b"t" + struct.pack("<Q", 1)
    with pytest.raises(codec.Malformed):
        codec.decode(head + data)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["python"][:60])
def test_bytes_cut_short_or_too_long_are_malformed(vector):
    """EX-67"""
    if "np." in vector["python"]:
        pytest.importorskip("numpy", reason="numpy is not installed")
    data = bytes.fromhex(vector["hex"])
    for end in set(range(min(len(data), 300))) | {len(data) - 1}:
        with pytest.raises(codec.Malformed):
            codec.decode(data[:end])
    with pytest.raises(codec.Malformed):
        codec.decode(data + b"N")


def test_a_dtype_holds_no_array():
    """EX-67"""
    with pytest.raises(codec.Malformed):
        codec.decode(b"AC" * 100_000)
    with pytest.raises(codec.Malformed):
        codec.decode(b"n" * 100_000)


def test_changed_bytes_are_a_value_or_malformed():
    """EX-67"""
    chance = random.Random(1)
    numpy = importlib.util.find_spec("numpy") is not None
    usable = [v for v in VECTORS if numpy or "np." not in v["python"]]
    likely = [0, 1, 255, *b"NTFiIfcusbBltSZodqDAn"]
    for _ in range(5000):
        data = bytearray.fromhex(chance.choice(usable)["hex"])[:4000]
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.choice(likely + [chance.randrange(256)])
        try:
            codec.decode(data)
        except codec.Malformed:
            pass


def test_numpy_is_imported_only_for_arrays():
    """EX-68"""
    vector = next(v for v in VECTORS if v["python"] == "{'b': 1, 'a': [{}]}")
    program = "import sys; exec(open(sys.argv[1]).read()); encode(decode(bytes.fromhex(sys.argv[2])))"
    program += "; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program, str(CODEC), vector["hex"]], check=True)


def test_arrays_of_objects_are_refused():
    """EX-65"""
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    assert refused({"a": np.array([None])}).startswith("$.a: numpy array of objects")
    assert refused(np.zeros(2, dtype=[("a", object)])).startswith("$: numpy array of objects")
    assert refused([np.array([(1, None)], dtype="i4,O")[0]]).startswith("$[0]: numpy scalar of objects")
    plain = bytearray(encoded(np.zeros(2)))
    objects = plain.replace(b"<f8", b"|O8")
    with pytest.raises(codec.Malformed):
        codec.decode(objects)


def test_arrays_keep_shape_order_and_type():
    """EX-65"""
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    base = np.arange(24.0).reshape(2, 3, 4)
    for array in [base, base.T, np.asfortranarray(base), base[:, ::2, ::-1], base.transpose(1, 0, 2), base[0, 0, 0:0]]:
        for dtype in ["<f8", ">f8", "<f2", "?", "i1", "<c8", "<c16", "S3", "<U5", "m8[s]", "g"]:
            value = array.astype(dtype)
            back = round_trip(["x", value])[1]
            assert same(back, value)
            assert back.flags.writeable
    assert round_trip(np.asfortranarray(base)).flags.f_contiguous
    record = np.rec.array([(1, 2.0)], dtype="i4,f8")
    assert type(round_trip(record)) is np.ndarray


def test_a_memmap_arrives_as_a_plain_writable_array(tmp_path):
    """EX-68"""
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    np.arange(5).tofile(tmp_path / "data")
    value = np.memmap(tmp_path / "data", dtype=int, mode="r")
    back = round_trip(value)
    assert type(back) is np.ndarray
    assert back.flags.writeable
    assert same(back, np.arange(5))


def test_large_buffers_are_not_copied():
    """EX-65"""
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    array, data = np.zeros(1 << 20), bytes(1 << 20)
    chunks = codec.encode({"array": array, "data": data})
    assert any(chunk is data for chunk in chunks)
    views = [chunk for chunk in chunks if isinstance(chunk, memoryview)]
    assert np.shares_memory(np.asarray(views[0]), array)
    payload = bytearray(b"".join(chunks))
    assert sum(map(len, chunks)) == len(payload)
    back = codec.decode(payload)["array"]
    back[0] = math.pi
    assert struct.pack("<d", math.pi) in payload
