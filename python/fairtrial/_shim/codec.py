"""The `data` codec as the worker speaks it: plain values to bytes and back.

The format is defined in `crates/fairtrial-exec/src/value.rs`. This text runs inside the worker shim, in whatever
CPython (3.8 or later) the user has: it needs the standard library only, and imports numpy only to decode a payload
that holds an array. Encoding never calls a method that the value's class could have replaced.
"""

import sys
from _collections import OrderedDict
from struct import Struct, error as StructError, pack, unpack_from

MAX_DEPTH = 1000  # containers inside containers, at most
_ALONE = 1 << 16  # buffers of this size and more are handed on as they are, not copied together
_ALIGNMENT = 64  # of array data, from the start of the payload
_PACK_FROM = 9  # shorter lists are not looked at for the packed forms
_MEMO = 4096  # entries, at most, in what a single call remembers

# What a value is. Containers come first: `kind <= _LAST_CONTAINER`.
_DICT, _LIST, _TUPLE, _SET, _FROZENSET = _CONTAINERS = 1, 2, 3, 4, 5
_LAST_CONTAINER = _FROZENSET
_STR, _INT, _FLOAT, _SINGLE, _BYTES, _BYTEARRAY, _COMPLEX, _ARRAY, _SCALAR, _OTHER = range(6, 16)

# In this order a subclass looks for its base; a bool or None has no subclass.
_BASES = (
    (str, _STR),
    (int, _INT),
    (float, _FLOAT),
    (dict, _DICT),
    (list, _LIST),
    (tuple, _TUPLE),
    (bytes, _BYTES),
    (bytearray, _BYTEARRAY),
    (complex, _COMPLEX),
    (set, _SET),
    (frozenset, _FROZENSET),
)
_KINDS = dict(_BASES)
_KINDS[bool] = _KINDS[type(None)] = _SINGLE

_SINGLES = {None: b"N", True: b"T", False: b"F"}
_TAGS = {kind: ord(tag) for kind, tag in zip(_CONTAINERS, "dltSZ")}
_SHORT = [b"u" + bytes((n,)) for n in range(256)]  # heads of short strings, by length
_LENGTH = Struct("<BQ")  # a tag, and a count or length
_I64 = Struct("<Bq")
_F64 = Struct("<Bd")
_DOUBLE, _SIGNED, _COUNT = Struct("<d"), Struct("<q"), Struct("<Q")
_ALL = slice(None)
_ONLY_STR = frozenset((str,))
_AT_KEYS, _IN_SET = "keys", "set"  # labels of children that have no name


class Unencodable(ValueError):
    """A value that is not plain data: `path` says where it sits, `what` says what it is."""

    def __init__(self, path, what):
        super().__init__('%s: %s (not plain data; result="pickle" may carry it)' % (path, what))
        self.path = path
        self.what = what


class Malformed(ValueError):
    """Bytes that are no value."""


def encode(value):
    """The value's bytes: a list of chunks, bytes-like, each as long as its `len`. Large buffers are not copied."""
    kinds = dict(_KINDS)
    shapes = {}  # keys of a dict -> their bytes
    chunks, buf, before = [], bytearray(), 0
    # A frame is a container on its way out: children still to come, all of them, their names, the container's id.
    frame = items, _, _, ident = iter((value,)), (value,), None, None
    stack, active = [], set()
    while True:
        for x in items:
            kind = kinds.get(type(x)) or _kind_of(type(x), kinds)
            alone = None
            if kind == _STR:
                data = str.encode(x, "utf-8", "surrogatepass")
                if len(data) < 256:
                    buf += _SHORT[len(data)]
                    buf += data
                else:
                    buf += _LENGTH.pack(0x73, len(data))
                    alone = data
            elif kind == _FLOAT:
                buf += _F64.pack(0x66, x)
            elif kind == _INT:
                try:
                    buf += _I64.pack(0x69, int.__index__(x))
                except StructError:
                    alone = int.to_bytes(x, int.bit_length(x) // 8 + 1, "little", signed=True)
                    buf += _LENGTH.pack(0x49, len(alone))
            elif kind == _SINGLE:
                buf += _SINGLES[x]
            elif kind <= _LAST_CONTAINER:
                ident = id(x)
                if ident in active or len(active) >= MAX_DEPTH:
                    what = "cycle" if ident in active else "over %d levels" % MAX_DEPTH
                    raise Unencodable(_path(stack, frame), what)
                if kind == _DICT:
                    labels, children = _parts(x)
                    head = _head_of_plain_keys(labels, shapes)
                    if head is None:
                        head = _LENGTH.pack(0x64, len(labels))
                        stack.append(frame)
                        active.add(ident)
                        frame = iter(children), children, labels, ident
                        ident, children, labels = None, labels, _AT_KEYS
                else:
                    labels, children = _children(x, kind)
                    head = None
                    if kind == _LIST and len(children) >= _PACK_FROM:
                        head, alone = _packed(children)
                    if head is None:
                        head = _LENGTH.pack(_TAGS[kind], len(children))
                    else:
                        children = None
                buf += head
                if children:
                    stack.append(frame)
                    if ident is not None:
                        active.add(ident)
                    frame = items, _, _, _ = iter(children), children, labels, ident
                    break
            else:
                try:
                    head, alone = _rare(x, kind, before + len(buf))
                except _Refused as refusal:
                    raise Unencodable(_path(stack, frame), str(refusal)) from None
                buf += head
            if alone is not None:
                if len(alone) < _ALONE:
                    buf += alone
                else:
                    before += len(buf) + len(alone)
                    chunks += (buf, alone)
                    buf = bytearray()
        else:
            if not stack:
                chunks.append(buf)
                return chunks
            active.discard(frame[3])
            frame = stack.pop()
            items = frame[0]


class _Refused(Exception):
    """What a leaf is that cannot travel; the path is added where it is known."""


def _kind_of(cls, kinds):
    """The kind of a class not met before. `issubclass` with a built-in on the right asks no metaclass."""
    numpy = sys.modules.get("numpy")
    bases = _BASES
    if numpy is not None:
        # First, for `numpy.float64` is a float too.
        ours = (getattr(numpy, "ndarray", None), _ARRAY), (getattr(numpy, "generic", None), _SCALAR)
        bases = tuple(pair for pair in ours if type(pair[0]) is type) + bases
    for base, kind in bases:
        if issubclass(cls, base):
            kinds[cls] = kind
            return kind
    return _OTHER


def _parts(x):
    """Keys and values of a dict, in order. An `OrderedDict` has an order of its own."""
    if type(x) is dict:
        return list(x), x.values()
    base = OrderedDict if issubclass(type(x), OrderedDict) else dict
    return list(base.keys(x)), list(base.values(x))


def _head_of_plain_keys(keys, shapes):
    """Head and keys of a dict that can be a JSON object, or None. Dicts of the same keys are looked up."""
    if not _ONLY_STR.issuperset(map(type, keys)):
        return None
    shape = tuple(keys)
    head = shapes.get(shape)
    if head is not None:
        return head
    parts = [_LENGTH.pack(0x6F, len(keys))]
    for key in keys:
        try:
            data = key.encode()
        except UnicodeEncodeError:
            return None
        if data[:1] == b"$":
            return None
        parts.append(_SHORT[len(data)] if len(data) < 256 else _LENGTH.pack(0x73, len(data)))
        parts.append(data)
    head = b"".join(parts)
    if len(shapes) < _MEMO and len(head) < _MEMO:
        shapes[shape] = head
    return head


def _children(x, kind):
    """What names the children of a sequence or set, and the children."""
    if kind == _LIST:
        return None, x if type(x) is list else list.__getitem__(x, _ALL)
    if kind == _TUPLE:
        return None, x if type(x) is tuple else tuple.__getitem__(x, _ALL)
    return _IN_SET, list((set if kind == _SET else frozenset).__iter__(x))


def _packed(items):
    """Head and data of a list of floats only, or of ints only that fit 64 bits; else a pair of None."""
    first = type(items[0])
    if (first is float or first is int) and len(set(map(type, items))) == 1:
        tag, code = (0x44, "d") if first is float else (0x71, "q")
        try:
            return _LENGTH.pack(tag, len(items)), pack("<%d%s" % (len(items), code), *items)
        except StructError:
            pass
    return None, None


def _rare(x, kind, position):
    """Head and data of a leaf that is met less often."""
    if kind == _BYTES:
        data = x if type(x) is bytes else bytes.__getitem__(x, _ALL)
        return _LENGTH.pack(0x62, len(data)), data
    if kind == _BYTEARRAY:
        data = bytearray.__getitem__(x, _ALL)
        return _LENGTH.pack(0x42, len(data)), data
    if kind == _COMPLEX:
        return pack("<Bdd", 0x63, complex.real.__get__(x), complex.imag.__get__(x)), None
    if kind == _ARRAY:
        return _array(x, position)
    if kind == _SCALAR:
        return _scalar(x)
    raise _Refused(type.__dict__["__name__"].__get__(type(x)))


def _array(x, position):
    """Head and data of a numpy array; data is a view of the array where that is contiguous."""
    numpy = sys.modules["numpy"]
    array = numpy.asarray(x)
    head = _dtype(array.dtype, numpy, "array")
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = numpy.ascontiguousarray(array)
    order = b"C" if array.flags.c_contiguous else b"F"
    shape = array.shape
    size = array.size * array.itemsize
    head = b"A" + order + head + pack("<B%dQQ" % len(shape), len(shape), *(shape + (size,)))
    head += bytes(-(position + len(head)) % _ALIGNMENT)
    if size == 0:
        return head, None
    return head, memoryview(array.reshape(-1, order="A").view(numpy.uint8))


def _scalar(x):
    """Head and data of a numpy scalar."""
    numpy = sys.modules["numpy"]
    if isinstance(x, str):
        data = str.encode(x, "utf-32-le", "surrogatepass")
        head = _plain("<U%d" % (len(data) // 4))
    elif isinstance(x, bytes):
        data = bytes.__getitem__(x, _ALL)
        head = _plain("|S%d" % len(data))
    else:
        array = numpy.asarray(x)
        head = _dtype(array.dtype, numpy, "scalar")
        data = array.tobytes()
    return b"n" + head + pack("<Q", len(data)), data


def _plain(value):
    return b"".join(encode(value))


def _dtype(dtype, numpy, what):
    """Bytes of a dtype's description."""
    if dtype.hasobject:
        raise _Refused("numpy %s of objects" % what)
    return _plain(_describe(dtype, numpy, what))


def _describe(dtype, numpy, what):
    """A dtype as data: its `str`; a dict as `numpy.dtype` takes; or `[base, shape]` for a field that is an array."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_describe(base, numpy, what), list(shape)]
    if dtype.names is None:
        text = dtype.str
        if dtype.kind not in "biufcmMSUV" or numpy.dtype(text) != dtype:
            raise _Refused("numpy %s of %s" % (what, dtype.name))
        return text
    fields = [dtype.fields[name] for name in dtype.names]
    described = {
        "names": list(dtype.names),
        "formats": [_describe(field[0], numpy, what) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
    }
    titles = [field[2] if len(field) > 2 else None for field in fields]
    if any(title is not None for title in titles):
        if not all(title is None or type(title) is str for title in titles):
            raise _Refused("numpy %s whose fields have titles that are not text" % what)
        described["titles"] = titles
    if dtype.isalignedstruct:
        described["aligned"] = True
    return described


def _path(stack, frame):
    """Where encoding stopped, as `$.items[3].fn`."""
    steps = []
    for items, children, labels, _ in (stack + [frame])[1:]:
        index = len(children) - items.__length_hint__() - 1
        if index < 0:
            continue  # values of a dict whose keys are still being written
        if labels is None:
            steps.append("[%d]" % index)
        elif labels is _AT_KEYS:
            steps.append("{key %d}" % index)
        elif labels is _IN_SET:
            steps.append("{item}")
        else:
            steps.append(_step(labels[index], index))
    if len(steps) > 40:
        steps[20:-20] = ["...(%d more)..." % (len(steps) - 40)]
    return "$" + "".join(steps)


def _step(key, index):
    if type(key) is str:
        return "." + key if key.isidentifier() else "[%s]" % ascii(key[:80])
    if type(key) in (int, float, bool, type(None)) and not (type(key) is int and key.bit_length() > 256):
        return "[%r]" % (key,)
    return "[key %d]" % index


def _numpy():
    try:
        import numpy
    except ImportError as error:
        raise Malformed("it holds a numpy array, and here `import numpy` fails: %s" % error) from None
    return numpy


def decode(buffer, numpy=_numpy):
    """The value in `buffer`, which must hold it exactly. Arrays share a writable buffer, and copy a read-only one.

    `numpy()` gives the module that makes arrays.
    """
    view = memoryview(buffer)
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    try:
        value, end = _decode(view, 0, numpy)
    except (StructError, LookupError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, Malformed):
            raise
        raise Malformed("these bytes are no value: %s" % error) from None
    if end != len(view):
        raise Malformed("%d bytes follow the value" % (len(view) - end))
    return value


def _decode(view, at, numpy):
    """The value at `at`, and where it ends. It holds arrays only where they may be: not in a dtype."""
    size = len(view)
    texts = {}  # short strings seen
    float_at, int_at, count_at = _DOUBLE.unpack_from, _SIGNED.unpack_from, _COUNT.unpack_from
    stack = []
    items, want, finish = None, 0, None  # the container being filled
    while True:
        tag = view[at]
        at += 1
        if tag == 0x75:  # u
            start = at + 1
            at = start + view[at]
            if at > size:
                _within(at, size)
            data = view[start:at].tobytes()
            value = texts.get(data)
            if value is None:
                value = str(data, "utf-8", "surrogatepass")
                if len(texts) < _MEMO:
                    texts[data] = value
        elif tag == 0x66:  # f
            (value,) = float_at(view, at)
            at += 8
        elif tag == 0x69:  # i
            (value,) = int_at(view, at)
            at += 8
        elif tag in _CONSTANTS:
            value = _CONSTANTS[tag]
        elif tag in _FINISH:
            (count,) = count_at(view, at)
            at += 8
            slots = count * 2 if tag in (0x6F, 0x64) else count
            _within(at + slots, size)  # a value takes a byte at least
            if len(stack) >= MAX_DEPTH:
                raise Malformed("over %d levels" % MAX_DEPTH)
            if slots:
                stack.append((items, want, finish))
                items, want, finish = [], slots, _FINISH[tag]
                continue
            value = (_FINISH[tag] or list)([])
        elif tag in b"An" and numpy:
            value, at = (_decode_array if tag == 0x41 else _decode_scalar)(view, at, size, numpy())
        else:
            value, at = _decode_rare(view, at, tag, size)
        while items is not None:
            items.append(value)
            if len(items) < want:
                break
            value = finish(items) if finish else items
            items, want, finish = stack.pop()
        else:
            return value, at


def _within(end, size):
    if end > size:
        raise Malformed("it ends early: %d bytes claimed, %d there" % (end, size))
    return end


def _dict(items):
    half = len(items) // 2
    return dict(zip(items[:half], items[half:]))


_CONSTANTS = {ord("N"): None, ord("T"): True, ord("F"): False}
_FINISH = {
    ord("l"): None,
    ord("t"): tuple,
    ord("S"): set,
    ord("Z"): frozenset,
    ord("o"): _dict,
    ord("d"): _dict,
}


def _decode_rare(view, at, tag, size):
    if tag == 0x63:  # c
        return complex(*unpack_from("<dd", view, at)), at + 16
    if tag not in b"sIbBqD":
        raise Malformed("unknown tag %d at byte %d" % (tag, at - 1))
    (count,) = unpack_from("<Q", view, at)
    at += 8
    end = _within(at + count * (8 if tag in b"qD" else 1), size)
    if tag == 0x44:  # D
        return list(unpack_from("<%dd" % count, view, at)), end
    if tag == 0x71:  # q
        return list(unpack_from("<%dq" % count, view, at)), end
    data = view[at:end]
    if tag == 0x73:  # s
        return str(data, "utf-8", "surrogatepass"), end
    if tag == 0x49:  # I
        return int.from_bytes(data, "little", signed=True), end
    return (bytes if tag == 0x62 else bytearray)(data), end


def _decode_array(view, at, size, numpy):
    order = {0x43: "C", 0x46: "F"}.get(view[at])
    described, at = _decode(view, at + 1, None)
    dtype = _undescribe(described, numpy, 0)
    shape = unpack_from("<%dQ" % view[at], view, at + 1)
    at += 1 + 8 * len(shape)
    (length,) = unpack_from("<Q", view, at)
    at += 8
    at += -at % _ALIGNMENT
    _within(at + length, size)
    count = 1
    for n in shape:
        count *= n
    if order is None or count * dtype.itemsize != length:
        raise Malformed("an array's size does not fit its shape")
    data = view[at : at + length]
    if view.readonly:
        data = bytearray(data)
    return numpy.ndarray(shape, dtype, data, 0, None, order), at + length


def _decode_scalar(view, at, size, numpy):
    described, at = _decode(view, at, None)
    dtype = _undescribe(described, numpy, 0)
    (length,) = unpack_from("<Q", view, at)
    at += 8
    end = _within(at + length, size)
    data = bytearray(view[at:end])
    if dtype.kind == "S":
        return numpy.bytes_(bytes(data)), end
    if dtype.kind == "U":
        order = "utf-32-be" if dtype.byteorder == ">" else "utf-32-le"
        return numpy.str_(data.decode(order, "surrogatepass")), end
    if dtype.itemsize != length:
        raise Malformed("a scalar's size does not fit its type")
    return numpy.ndarray((), dtype, data)[()], end


def _undescribe(described, numpy, depth):
    """The dtype that `_describe` described; never one that holds objects."""
    if depth > 32:
        raise Malformed("a dtype of over 32 levels")
    if type(described) is str:
        if described[:1] not in tuple("<>|") or described[1:2] not in tuple("biufcmMSUV"):
            raise Malformed("an array of %s" % ascii(described[:80]))
        dtype = numpy.dtype(described)
    elif type(described) is list:
        base, shape = described
        dtype = numpy.dtype((_undescribe(base, numpy, depth + 1), tuple(shape)))
    else:
        described = dict(described)
        described["formats"] = [_undescribe(one, numpy, depth + 1) for one in described["formats"]]
        dtype = numpy.dtype(described)
    if dtype.hasobject:
        raise Malformed("an array of objects")
    return dtype
