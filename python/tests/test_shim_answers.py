"""What the shim answers: values and errors, on every interpreter found."""

import os
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from shim_case import ShimCase, dedent, on_every_interpreter  # noqa: E402
from shim_harness import (  # noqa: E402
    ACK,
    DUMP_SIGNAL,
    ERROR,
    FILED,
    NEED,
    RUN,
    VALUE,
    WAIT_S,
    encode,
)


class ShimAnswers(ShimCase):
    """Values, and what is told of what went wrong."""

    # -- results

    def test_large_arguments_come_in_a_file(self):
        """EX-61"""
        data = os.urandom(1 << 20)
        header = {"kind": "source", "source": "def f(x): return x[::-1]", "function": "f"}
        reply = self.worker().call(header, encode(((data,), {})), in_file=True)
        self.assertEqual(reply.value, data[::-1])

    def test_a_large_body_may_ride_in_the_frame(self):
        """EX-61"""
        data = os.urandom(3 << 20)
        self.assertEqual(self.run_source("def f(x): return len(x)", data).value, len(data))

    def test_a_large_value_goes_to_a_file(self):
        """EX-54"""
        reply = self.run_source("def f(): return [b'x' * 1000000, 'y' * 5000000]")
        self.assertEqual(reply.kinds, [ACK, RUN, NEED, FILED])
        self.assertEqual(reply.value, [b"x" * 1000000, "y" * 5000000])

    def test_a_value_of_many_buffers_goes_to_a_file(self):
        """EX-54"""
        reply = self.run_source("def f(): return [bytes([n % 256]) * 70000 for n in range(1500)]")
        self.assertEqual(reply.value, [bytes([n % 256]) * 70000 for n in range(1500)])

    def test_a_value_of_the_inline_size_rides_inline(self):
        """EX-54"""
        overhead = len(encode(b"x" * 300)) - 300
        for extra, kinds in ((0, [ACK, RUN, VALUE]), (1, [ACK, RUN, NEED, FILED])):
            reply = self.run_source("def f(n): return b'x' * n", 65536 - overhead + extra)
            self.assertEqual(reply.kinds, kinds)

    def test_a_large_error_record_goes_to_a_file(self):
        """EX-54, EX-76"""
        reply = self.run_source("def f(): raise ValueError('x' * 300000)")
        self.assertEqual(reply.kinds, [ACK, RUN, NEED, FILED])
        self.assertEqual(reply.error["message"], "x" * 300000)

    def test_a_value_that_is_no_data_is_bad_result(self):
        """EX-66"""
        error = self.error_of("def f(): return {'items': [1, f]}")
        self.assertEqual((error["verdict"], error["type"]), ("bad_result", "Unencodable"))
        self.assertIn("function", error["message"])

    def test_a_coroutine_function_is_run_to_completion(self):
        """EX-75"""
        source = """
            import asyncio
            async def f(x):
                await asyncio.sleep(0)
                return x + 1
            async def g(): raise KeyError(1)
        """
        self.assertEqual(self.run_source(source, 1).value, 2)
        error = self.error_of(source, function="g")
        self.assertEqual(error["type"], "KeyError")
        self.assertNotIn("asyncio/", error["traceback"])

    def test_a_method_can_be_called_by_its_dotted_name(self):
        """EX-75"""
        source = "class A:\n    @staticmethod\n    def g(x): return x"
        self.assertEqual(self.run_source(source, 3, function="A.g").value, 3)

    def test_dataclasses_and_pickles_find_the_candidate_module(self):
        """EX-75"""
        source = """
            from __future__ import annotations
            import dataclasses, pickle, typing
            @dataclasses.dataclass
            class P:
                x: int
            def f(): return pickle.loads(pickle.dumps(P(3))).x, str(typing.get_type_hints(P)["x"])
        """
        self.assertEqual(self.run_source(source).value, (3, "<class 'int'>"))

    def test_a_child_that_returns_from_the_candidate_answers_nothing(self):
        """EX-63"""
        source = "import os\ndef f():\n    pid = os.fork()\n    if pid: os.waitpid(pid, 0)\n    return pid > 0"
        worker = self.worker()
        self.assertIs(worker.source(source).value, True)
        worker.stream.sock.settimeout(0.05)
        with self.assertRaises(OSError):
            worker.stream.read()

    # -- errors

    def test_a_traceback_has_the_users_frames_and_three_lines_of_context(self):
        """EX-74"""
        source = """
            def g(x):
                a = 1
                b = 2
                c = 3
                return a / x
                d = 4
                e = 5
                f = 6
                g = 7

            def f(x):
                return g(x)
        """
        error = self.error_of(source, 0)
        self.assertEqual((error["verdict"], error["type"]), ("exception", "ZeroDivisionError"))
        self.assertEqual(error["message"], "division by zero")
        expected = """
            Traceback (most recent call last):
              File "<source>", line 12, in f
                return g(x)
              File "<source>", line 5, in g
                return a / x
            ZeroDivisionError: division by zero

            <source>:5
               2 |     a = 1
               3 |     b = 2
               4 |     c = 3
            >> 5 |     return a / x
               6 |     d = 4
               7 |     e = 5
               8 |     f = 6
        """
        self.assertEqual(error["traceback"], dedent(expected))

    def test_causes_and_contexts_are_in_the_traceback(self):
        """EX-74"""
        source = """
            def f():
                try:
                    {}["a"]
                except KeyError as e:
                    try:
                        raise ValueError("b") from e
                    except ValueError:
                        raise RuntimeError("c")
        """
        text = self.error_of(source)["traceback"]
        order = ["KeyError: 'a'", "direct cause", "ValueError: b", "During handling", "RuntimeError: c", ">> 8"]
        self.assertEqual(sorted(order, key=text.index), order)

    def test_a_deep_recursion_is_counted_not_listed(self):
        """EX-74"""
        error = self.error_of("def f(): return f()")
        self.assertEqual(error["type"], "RecursionError")
        self.assertIn("more times]", error["traceback"])
        self.assertLess(error["traceback"].count("in f"), 6)

    def test_a_syntax_error_has_line_text_and_caret(self):
        """EX-74, EX-75"""
        reply = self.run_source("x = 1\ndef f(:\n    pass\n")
        self.assertEqual(reply.kinds, [ACK, ERROR])
        error = reply.error
        self.assertEqual((error["verdict"], error["type"]), ("exception", "SyntaxError"))
        self.assertIn('File "<source>", line 2\n    def f(:\n          ^\n', error["traceback"])
        self.assertIn(">> 2 | def f(:", error["traceback"])

    def test_a_syntax_error_without_a_place_invents_none(self):
        """EX-75"""
        error = self.error_of("def f(): return '\0'\n")
        self.assertIn(error["type"], ("SyntaxError", "ValueError"))
        self.assertNotIn("None", error["traceback"])

    def test_a_missing_function_is_named_with_the_nearest(self):
        """EX-75"""
        error = self.error_of("from math import sin\ndef slove(): pass\ndef main(): pass\n", function="solve")
        self.assertEqual((error["verdict"], error["type"]), ("exception", "LookupError"))
        message = "no function `solve` in `<source>`; defined: `slove`, `main` (did you mean `slove`?)"
        self.assertEqual(error["message"], message)

    def test_a_function_that_is_not_callable_is_a_type_error(self):
        """EX-75"""
        error = self.error_of("f = 3")
        self.assertEqual((error["verdict"], error["type"]), ("exception", "TypeError"))

    def test_wrong_arguments_are_a_type_error_without_shim_frames(self):
        """EX-74"""
        error = self.error_of("def f(a): pass")
        self.assertEqual(error["type"], "TypeError")
        self.assertNotIn("fairtrial", error["traceback"])

    def test_exits_and_interrupts_are_exceptions(self):
        """EX-37, EX-71"""
        worker = self.worker()
        for kind in ("SystemExit", "KeyboardInterrupt", "GeneratorExit"):
            error = worker.source("def f(): raise %s(3)" % kind, reuse=True).error
            self.assertEqual((error["verdict"], error["type"]), ("exception", kind))

    def test_a_type_is_named_with_its_module(self):
        """EX-73"""
        source = "import json\ndef f(): json.loads('{')"
        self.assertEqual(self.error_of(source)["type"], "json.decoder.JSONDecodeError")
        source = "class E(Exception):\n    class F(Exception): pass\ndef f(): raise E.F()"
        self.assertEqual(self.error_of(source)["type"], "E.F")

    def test_a_hostile_str_harms_only_its_own_report(self):
        """EX-73"""
        for body in ("raise SystemExit", "return 3", "import os; raise MemoryError", "return Sub('x')"):
            source = "class Sub(str):\n    def encode(self, *a): raise SystemExit\n"
            source += "class E(Exception):\n    def __str__(self): %s\ndef f(): raise E()\n" % body
            error = self.error_of(source)
            self.assertEqual(error["type"], "E")
            self.assertEqual(error["message"], "x" if "Sub('x')" in body else "<unprintable>")

    def test_a_huge_message_is_bounded_and_says_by_how_much(self):
        """EX-73, EX-76"""
        error = self.error_of("def f(): raise ValueError('a' * 50000000)", capture=1000)
        self.assertEqual(error["message"], "a" * 500 + "\n[... 49999000 bytes dropped ...]\n" + "a" * 500)
        self.assertLess(len(error["traceback"]), 1100)

    def test_a_verdict_does_not_depend_on_text(self):
        """EX-72"""
        self.assertEqual(self.error_of("def f(): raise KeyError('MemoryError')")["type"], "KeyError")

    def test_the_candidates_own_tracebacks_have_source(self):
        """EX-74"""
        source = """
            import traceback
            def f():
                try:
                    1 / 0
                except ZeroDivisionError:
                    return traceback.format_exc()
        """
        self.assertIn("1 / 0", self.run_source(source).value)

    def test_the_stacks_of_a_hung_call_come_through_the_socket(self):
        """EX-51"""
        worker = self.worker()
        source = "import time\ndef stuck():\n    while True: time.sleep(0.01)\ndef f(): stuck()\n"
        header = {"kind": "source", "source": source, "function": "f", "filename": "<source>"}
        worker.start(header, encode(((), {})))
        self.assertEqual([worker.stream.read()[0], worker.stream.read()[0]], [ACK, RUN])
        data, deadline = b"", time.monotonic() + WAIT_S
        while b"in stuck" not in data and time.monotonic() < deadline:
            os.kill(worker.pid, DUMP_SIGNAL)
            data += worker.stream.sock.recv(65536)
        self.assertIn(b'File "<source>", line 3 in stuck', data)


globals().update(on_every_interpreter(ShimAnswers))

if __name__ == "__main__":
    unittest.main()
