"""Any bytes at the host's half of the data codec: valid values with a few changes, as `tests/strangers` of
`fairtrial-exec` does it for the engine. What once broke one of them is kept in one place and shown to both first.
"""

import importlib
import json
import os
import pathlib
import random
import struct
import sys
import tracemalloc
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "crates" / "fairtrial-exec" / "testdata" / "strangers" / "value"
SEED = int(os.environ.get("FAIRTRIAL_FUZZ_SEED", "1"))
ROUNDS = int(os.environ.get("FAIRTRIAL_FUZZ_ROUNDS", "5000"))
TAGS = b"NTFiIfcusbBltSZqDodAn"
WORDS = [0, 1, 2, 8, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


def parts_of_the_host():
    """The codec and its stand-in for numpy, without the package around them: that needs a build."""
    package = types.ModuleType("_host_under_test")
    package.__path__ = [str(ROOT / "python" / "fairtrial")]
    sys.modules[package.__name__] = package
    views = importlib.import_module("_host_under_test._views")
    return importlib.import_module("_host_under_test._shim.codec"), views


codec, views = parts_of_the_host()


def values():
    """Encoded values, small enough to change often. Arrays among them, whether or not numpy is here."""
    vectors = json.loads((ROOT / "crates" / "fairtrial-exec" / "testdata" / "values.json").read_text())
    return [data for data in (bytes.fromhex(vector["hex"]) for vector in vectors) if len(data) < 4000]


def changed(seeds, chance):
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 4)):
        if not data:
            data += chance.choice(seeds)
        at = chance.randrange(len(data))
        end = min(len(data), at + chance.randrange(24))
        word = struct.pack("<Q", chance.choice(WORDS))
        change = chance.randrange(8)
        if change == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif change == 1:
            data[at] = chance.choice(TAGS)
        elif change == 2:
            del data[at:]
        elif change == 3:
            data[at:end] = word
        elif change == 4 and at + 8 <= len(data):
            (was,) = struct.unpack_from("<Q", data, at)
            struct.pack_into("<Q", data, at, chance.choice([was + 1, was - 1, was * 2]) % (1 << 64))
        elif change == 5:
            data[at:end] = chance.choice(seeds)
        elif change == 6:
            data[at:at] = data[at:end]
        else:
            del data[at:end]
    return bytes(data)


def stands(data, numpy):
    """Decodes bytes or refuses them in the one way that callers know, and takes no memory on their word."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        value = codec.decode(data, numpy)
    except codec.Malformed:
        return
    finally:
        _, peak = tracemalloc.get_traced_memory()
        assert peak - before <= 200 * len(data) + (1 << 17), f"{peak - before} bytes for {len(data)}"
    try:
        again = b"".join(codec.encode(value))
    except codec.Unencodable:
        return  # the views that stand in for arrays, and what numpy has no text for
    assert b"".join(codec.encode(codec.decode(again, numpy))) == again or unordered(value)


def unordered(value):
    """Whether it may be written in another order next time: sets."""
    return "{" in repr(value) or "set" in repr(value)


def numpys():
    """The real one if it is here, and what stands in for it."""
    try:
        import numpy

        yield "numpy", lambda: numpy
    except ImportError:
        pass
    yield "views", lambda: views._Views


@pytest.mark.parametrize("numpy", [pytest.param(get, id=name) for name, get in numpys()])
def test_no_bytes_are_more_than_a_value_or_malformed(numpy):
    """EX-67, SB-38"""
    seeds = values()
    chance = random.Random(SEED)
    tracemalloc.start()
    try:
        for path in sorted(KEPT.iterdir()):
            stands(path.read_bytes(), numpy)
        for number in range(ROUNDS):
            data = changed(seeds, chance)
            try:
                stands(data, numpy)
            except BaseException:
                path = KEPT / f"found-by-python-{SEED}-{number}"
                path.write_bytes(data)
                print(f"seed {SEED}, round {number}: kept as {path}")
                raise
    finally:
        tracemalloc.stop()
