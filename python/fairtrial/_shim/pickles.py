# Pickles as payloads: a pickle, its out-of-band buffers, and perhaps a function that goes by value. Nothing is loaded
# before a call needs it.
from _frozen_importlib_external import MAGIC_NUMBER as _MAGIC_NUMBER
from _io import BytesIO as _BytesIO
from marshal import loads as _load_code
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

    _pickle_functions.update(loads=_pickle.loads, dumps=_pickle.dumps, Unpickler=_pickle.Unpickler)


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


_PARTS_MARK = b"\0"
_MAX_KEPT_PICKLE = 64 << 10
_MAX_KEPT_PICKLES = 1 << 20
_Function = type(_dumps)
_Builtin = type(len)
_UNCHANGING = frozenset((type(None), bool, int, float, complex, str, bytes))
# What `cloudpickle` says of a function beside its names and its closure.
_SLOTS = frozenset("__name__ __qualname__ __annotations__ __kwdefaults__ __defaults__ __module__ __doc__".split())


class Functions:
    """Functions that come by value. Each call has its own, and finds what it refers to as the host has it, whatever
    calls before it did: unpickled each time or, if it came before, made from its parts in a tenth of the time."""

    def __init__(self):
        self.makers = {}
        self.size = 0

    def make(self, pickle):
        maker = self.makers.get(pickle)
        if maker is None:
            in_parts = pickle[:1] == _PARTS_MARK
            maker = _recipe_of(pickle).make if in_parts else _pickle_functions["loads"]
            if len(pickle) <= _MAX_KEPT_PICKLE:
                # A pickle is taken apart should it come again: many never do.
                self.keep(pickle, maker if in_parts else self.take_apart)
        return maker(pickle)

    def keep(self, pickle, maker):
        if self.size + len(pickle) > _MAX_KEPT_PICKLES:
            self.makers.clear()
            self.size = 0
        self.makers[pickle] = maker
        self.size += len(pickle)

    def take_apart(self, pickle):
        recipe = _Recipe()
        function = recipe.record(pickle)
        self.makers[pickle] = recipe.make if recipe.is_whole(function) else _pickle_functions["loads"]
        return function


class _Recipe:
    """A function in parts, with those that come with it; whole if no part can change in place."""

    def __init__(self):
        self.is_plain = True
        self.named = []  # what the pickle finds by name
        self.functions = []
        self.spaces = []  # globals, and what is in them before any function's names are
        self.states = []  # of functions in the order in which they were told
        self.steps = []  # as above, with places instead of functions
        self.result = None

    def record(self, pickle):
        class Recorder(_pickle_functions["Unpickler"]):
            def find_class(_, module, name):
                return self.find(module, name, super().find_class(module, name))

        return Recorder(_BytesIO(pickle)).load()

    def find(self, module, name, found):
        self.named.append(found)
        if module == "cloudpickle.cloudpickle":
            if name == "_make_function":
                return lambda *parts: self.made(found(*parts), *parts)
            if name == "_function_setstate":
                return lambda function, state: self.told(function, *state) or found(function, state)
            if name not in ("_builtin_type", "subimport"):
                self.is_plain = False  # a class, a cell, a module of no file
        return found

    def made(self, function, code, names, name, defaults, closure):
        if name or defaults or closure:
            self.is_plain = False
        if all(names is not space for space, _ in self.spaces):
            self.spaces.append((names, None if names is _main else dict(names)))
        self.functions.append(function)
        return function

    def told(self, function, attributes, slots):
        slots = dict(slots)
        names, closure = slots.pop("__globals__", {}), slots.pop("__closure__", None)
        slots.pop("_cloudpickle_submodules", None)  # they are imported by now
        if attributes or closure or not slots.keys() <= _SLOTS:
            self.is_plain = False
        slots = {name: dict(value) if type(value) is dict else value for name, value in slots.items()}
        self.states.append((function, slots, dict(names)))

    def is_whole(self, result):
        """Whether `make` can do it."""
        self.result = _place(result, self.functions)
        if not self.is_plain or self.result is None or len(self.states) != len(self.functions):
            return False
        spaces = [space for space, _ in self.spaces]
        for function, slots, names in self.states:
            others = {name: _place(value, self.functions) for name, value in names.items()}
            others = {name: place for name, place in others.items() if place is not None}
            names = {name: value for name, value in names.items() if name not in others}
            constants = (slots.get("__defaults__"), *(slots.get("__kwdefaults__") or {}).values(), *names.values())
            if not all(map(self.stays, constants)):
                return False
            place, space = _place(function, self.functions), _place(function.__globals__, spaces)
            self.steps.append((place, space, list(slots.items()), names, list(others.items())))
        places = [(function.__code__, _place(function.__globals__, spaces)) for function in self.functions]
        self.functions, self.spaces = places, [before for _, before in self.spaces]
        self.named = self.states = None
        return True

    def stays(self, value):
        """Whether a value is the same to every call."""
        if type(value) is tuple:
            return all(map(self.stays, value))
        if type(value) in _UNCHANGING or (type(value) is _Module and _modules.get(value.__name__) is value):
            return True
        return (isinstance(value, (type, _Function, _Builtin))) and _place(value, self.named) is not None

    def make(self, _pickle):
        spaces = [_main if before is None else dict(before) for before in self.spaces]
        functions = [_Function(code, spaces[space]) for code, space in self.functions]
        for place, space, slots, names, others in self.steps:
            function, space = functions[place], spaces[space]
            for name, value in slots:
                setattr(function, name, dict(value) if type(value) is dict else value)
            space.update(names)
            for name, other in others:
                space[name] = functions[other]
        return functions[self.result]


def _recipe_of(data):
    """Of a function of the host's `__main__` that came in parts (see `_functions.py`)."""
    if data[1:5] != _MAGIC_NUMBER:
        raise ValueError("a function of another version of Python")
    parts, names = _pickle_functions["loads"](data[5:])
    others = [(name, place) for name, (kind, place) in names.items() if kind == "function"]
    values = {name: value for name, (kind, value) in names.items() if kind == "value"}
    for name, (kind, module) in names.items():
        if kind == "module":
            __import__(module)
            values[name] = _modules[module]
    recipe = _Recipe()
    recipe.spaces = [None]
    recipe.functions = [(_load_code(code), 0) for code, _ in parts]
    for place, (_, slots) in enumerate(parts):
        recipe.steps.append((place, 0, [*slots.items(), ("__module__", "__main__")], {}, ()))
    place, space, slots, _, _ = recipe.steps[0]
    recipe.steps[0] = place, space, slots, values, others
    recipe.result = 0
    return recipe


def _place(thing, things):
    for place, other in enumerate(things):
        if other is thing:
            return place
    return None
