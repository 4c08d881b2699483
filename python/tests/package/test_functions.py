"""PY-30: functions of `__main__` by value: the latest definition each time, pickled again only when it changed."""

import gc
import os
import sys
import textwrap

from fairtrial import _functions

COUNTED = """
import fairtrial as ft, math
from math import sqrt
from fairtrial import _functions, _pickling

pickled = []
dumps = _pickling._dumps_by_value
_pickling._dumps_by_value = lambda thing, callback=None: pickled.append(thing) or dumps(thing, callback)
in_parts = _functions._in_parts
_functions._in_parts = lambda seen: pickled.append(seen) or in_parts(seen)

N = 2
items = [1]
def helper(x: int, *, by: float = 1.0) -> float: return sqrt(x) * by * N
def main(x): return helper(x) + math.pi * 0
def lists(): return items

executor = ft.Executor(1)
def times(function, *args):
    pickled.clear()
    values = [executor.submit(function, *args).result() for _ in range(3)]
    return values, len(pickled)
"""


def script(program, text):
    done = program(COUNTED + textwrap.dedent(text) + "\nexecutor.shutdown()\n")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_function_that_did_not_change_is_pickled_once(program):
    """PY-30"""
    assert script(program, "print(times(main, 9))").strip() == "([6.0, 6.0, 6.0], 1)"


def test_a_simple_function_needs_no_cloudpickle(program):
    """PY-30: nor is anything about it lost."""
    text = """
        import sys
        def inner(): return N
        fields = "__name__ __qualname__ __module__ __doc__ __defaults__ __kwdefaults__ __annotations__"
        def whole(a, b=2, *, c: int = 3) -> "float":
            "Its text."
            rest = inner() + a + b + c, math.floor(sqrt(9)), "cloudpickle" in sys.modules
            return *(getattr(whole, field) for field in fields.split()), *rest
        print(executor.submit(whole, 1).result())
        print("cloudpickle" in sys.modules)
        import json
        def package(): return json.decoder.scanner.NUMBER_RE.flags > 0, "cloudpickle" in sys.modules
        print(executor.submit(package).result())
    """
    assert script(program, text).splitlines() == [
        "('whole', 'whole', '__main__', 'Its text.', (2,), {'c': 3}, {'c': <class 'int'>, 'return': 'float'}, 8, 3, "
        "False)",
        "False",
        "(True, True)",
    ]


def test_a_class_of_the_program_in_an_annotation_goes_along(program):
    """PY-30"""
    text = """
        class Of: pass
        def annotated(x: Of = None): return annotated.__annotations__["x"].__name__
        print(executor.submit(annotated).result())
    """
    assert script(program, text).split() == ["Of"]


def test_what_a_function_refers_to_is_seen_to_change(program):
    """PY-30: a global, a function it calls, a default, a name that was not there."""
    text = """
        print(times(main, 9)[0][0])
        N = 3
        print(times(main, 9)[0][0])
        def helper(x): return -x
        print(times(main, 9)[0][0])
        def defaults(a=1, *, b: int = 2): return a, b
        print(executor.submit(defaults).result())
        defaults.__defaults__ = (3,)
        defaults.__kwdefaults__["b"] = 4
        print(executor.submit(defaults).result())
        def late(): return unknown
        print(type(executor.submit(late).exception()).__name__)
        unknown = 5
        print(executor.submit(late).result())
    """
    assert script(program, text).split() == ["6.0", "9.0", "-9.0", "(1,", "2)", "(3,", "4)", "NameError", "5"]


def test_what_can_change_in_place_is_pickled_each_time(program):
    """PY-30"""
    text = """
        import types
        print(times(lists))
        items.append(2)
        print(executor.submit(lists).result())
        bound = items.count  # a method of a list, not a function of a module
        def counts(): return bound(2)
        print(times(counts))
        module = types.ModuleType("module")
        module.x = 1
        def attribute(): return module.x
        print(times(attribute)[1])
    """
    assert script(program, text).splitlines() == ["([[1], [1], [1]], 3)", "[1, 2]", "([1, 1, 1], 3)", "3"]


def test_the_registry_of_functions_does_not_grow():
    """PY-30"""
    before = len(_functions._known)
    main = vars(sys.modules["__main__"])
    for _ in range(100):
        exec("def recursive_f(): return recursive_f, recursive_g\ndef recursive_g(): return recursive_f", main)
        assert _functions.pickled(main["recursive_f"], lambda function: b"x")
        assert main["recursive_f"] in _functions._known
    del main["recursive_f"], main["recursive_g"]
    gc.collect()
    assert len(_functions._known) == before


def test_a_module_function_goes_by_name():
    """PY-30"""
    assert not _functions.goes_by_value(os.path.join)
    assert _functions.goes_by_value(lambda: 1)
