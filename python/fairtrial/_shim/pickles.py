# Pickles as payloads: a pickle, its out-of-band buffers, and perhaps a function that goes by value. Nothing is loaded
# before a call needs it.
from struct import Struct as _Struct
from struct import pack as _pack
from struct import unpack_from as _unpack_from

_SIZE = _Struct("<Q")
_PICKLE_HEAD = _Struct("<QQ")
_BUFFER_ALIGNMENT = 64
_BY_VALUE = 1 << 63


def _split_pickle(body):
    """The pickle, its out-of-band buffers, and the pickle of a function that goes by value: all views."""
    length, count = _PICKLE_HEAD.unpack_from(body)
    at, by_value = 16, None
    if count & _BY_VALUE:
        count ^= _BY_VALUE
        at = 24 + _SIZE.unpack_from(body, 16)[0]
        by_value = body[24:at]
    if not count:
        return body[at : at + length], None, by_value
    if body.readonly:
        body = memoryview(bytearray(body))  # arrays made from it are to be writable
    sizes = _unpack_from("<%dQ" % count, body, at)
    at += 8 * count
    pickle = body[at : at + length]
    at += length
    buffers = []
    for size in sizes:
        at += -at % _BUFFER_ALIGNMENT
        buffers.append(body[at : at + size])
        at += size
    return pickle, buffers, by_value


def encode_pickle(value):
    """Chunks of a pickle payload: small parts by value, large buffers as they are, out of band."""
    buffers = []
    pickle = _dumps(value, buffers.append)
    if not buffers:
        head = _PICKLE_HEAD.pack(len(pickle), 0)
        return [head + pickle] if len(pickle) < 65536 else [head, pickle]
    raws = [buffer.raw() for buffer in buffers]
    sizes = [raw.nbytes for raw in raws]
    chunks = [_PICKLE_HEAD.pack(len(pickle), len(sizes)) + _pack("<%dQ" % len(sizes), *sizes), pickle]
    at = 16 + 8 * len(sizes) + len(pickle)
    for raw in raws:
        pad = -at % _BUFFER_ALIGNMENT
        if pad:
            chunks.append(bytes(pad))
        chunks.append(raw)
        at += pad + raw.nbytes
    return chunks


_pickle_functions = {}


def _load_pickle():
    import _pickle

    _pickle_functions.update(loads=_pickle.loads, dumps=_pickle.dumps)


def _dumps(value, buffer_callback=None):
    if not _pickle_functions:
        _load_pickle()
    try:
        return _pickle_functions["dumps"](value, 5, buffer_callback=buffer_callback)
    except Exception:
        # What lives in the caller's `__main__` came by value, and goes back so.
        cloudpickle = _modules.get("cloudpickle")
        if cloudpickle is None:
            raise
    if buffer_callback:
        buffer_callback.__self__.clear()
    return cloudpickle.dumps(value, 5, buffer_callback=buffer_callback)
