"""Counts and times the lines of the functions that a candidate changes (CA-83).

Loaded as `sitecustomize` from a directory on PYTHONPATH, so it needs no option of the interpreter and no change of the
program; whatever `sitecustomize` would have been loaded otherwise is loaded after it. Only the first interpreter of a
command is traced: its environment is put back, so that those it starts know nothing of this. FAIRTRIAL_PROFILE is the
file that results go to, at the root of the tree; `terms.json` beside this file says what is traced.

Standard library only, and no syntax newer than Python 3.7's.
"""

import ast
import atexit
import json
import os
import sys
import threading
from time import perf_counter_ns as clock

HERE = os.path.dirname(os.path.abspath(__file__))


class Table:
    """What is known of each chosen function: calls, and by line hits and nanoseconds."""

    def __init__(self, terms, root):
        self.functions = []
        self.by_place = {}
        for file, sides in sorted(terms["files"].items()):
            place = os.path.join(root, file)
            for name, start, end in changed(sides[terms["side"]], sides[terms["other"]]):
                function = {"file": file, "name": name, "start": start, "end": end, "calls": 0, "lines": {}}
                self.functions.append(function)
                self.by_place[place, start] = function
        self.places = {place for place, _ in self.by_place}
        self.known = {}

    def find(self, code):
        """The function that a code object is the body of, if it is a chosen one."""
        found = self.known.get(code, self)
        if found is self:
            place = os.path.abspath(code.co_filename)
            found = self.by_place.get((place, code.co_firstlineno)) if place in self.places else None
            if found is not None and found["name"].rpartition(".")[2] != code.co_name:
                found = None  # a comprehension on the first line
            self.known[code] = found
        return found

    def said(self, sources):
        for function in self.functions:
            texts = sources[function["file"]].splitlines()
            lines = []
            for line in range(function["start"], function["end"] + 1):
                hits, ns = function["lines"].get(line, (0, 0))
                text = texts[line - 1] if line <= len(texts) else ""
                lines.append({"line": line, "hits": hits, "total_s": ns / 1e9, "text": text[:300]})
            yield {
                "file": function["file"],
                "name": function["name"],
                "calls": function["calls"],
                "total_s": sum(line["total_s"] for line in lines),
                "lines": lines,
            }


def changed(own, other):
    """Name, first and last line of every function that the other side has not or has otherwise."""
    theirs = {(name, nth): dump for name, nth, _, _, dump in functions(other)}
    for name, nth, start, end, dump in functions(own):
        if theirs.get((name, nth)) != dump:
            yield name, start, end


def functions(text):
    if text is None:
        return
    seen = {}
    todo = [("", ast.parse(text))]
    while todo:
        prefix, node = todo.pop()
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            name = prefix + child.name if named else prefix
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                nth = seen[name] = seen.get(name, 0) + 1
                first = min([child.lineno] + [one.lineno for one in child.decorator_list])
                last = getattr(child, "end_lineno", None) or max(getattr(one, "lineno", 0) for one in ast.walk(child))
                yield name, nth, first, last, ast.dump(child)
            todo.append((name + "." if named else prefix, child))


class ByTrace:
    """For interpreters before 3.12."""

    def __init__(self, table, deadline):
        self.table = table
        self.deadline = deadline
        self.is_cut = False

    def start(self):
        threading.settrace(self.called)
        sys.settrace(self.called)

    def stop(self):
        threading.settrace(None)
        sys.settrace(None)

    def called(self, frame, event, _argument):
        function = None if self.is_cut else self.table.find(frame.f_code)
        if function is None:
            return None
        function["calls"] += 1
        lines = function["lines"]
        last = None
        since = clock()

        def local(frame, event, _argument):
            nonlocal last, since
            if event == "exception":
                return local
            now = clock()
            if last is not None:
                last[1] += now - since
            if now > self.deadline:
                self.is_cut = True
                self.stop()
                return None
            last = None
            if event == "line":
                last = lines.setdefault(frame.f_lineno, [0, 0])
                last[0] += 1
            since = clock()
            return local

        return local


class ByMonitoring:
    """For interpreters that can watch code objects one by one: the rest of the program runs at full speed."""

    def __init__(self, table, deadline):
        self.table = table
        self.deadline = deadline
        self.is_cut = False
        self.frames = {}  # by id: the cell of the line that runs, and since when

    def start(self):
        watch = sys.monitoring
        self.tool = next(tool for tool in range(6) if watch.get_tool(tool) is None)
        watch.use_tool_id(self.tool, "fairtrial")
        events = watch.events
        self.own = events.LINE | events.PY_RETURN | events.PY_YIELD | events.PY_RESUME
        watch.register_callback(self.tool, events.PY_START, self.began)
        watch.register_callback(self.tool, events.PY_RESUME, self.resumed)
        watch.register_callback(self.tool, events.LINE, self.line)
        watch.register_callback(self.tool, events.PY_RETURN, self.left)
        watch.register_callback(self.tool, events.PY_YIELD, self.left)
        watch.set_events(self.tool, events.PY_START)

    def stop(self):
        if self.tool is not None:
            sys.monitoring.set_events(self.tool, 0)
            sys.monitoring.free_tool_id(self.tool)
            self.tool = None

    def began(self, code, _offset):
        function = self.table.find(code)
        if function is None:
            return sys.monitoring.DISABLE
        if self.tool is not None and sys.monitoring.get_local_events(self.tool, code) != self.own:
            sys.monitoring.set_local_events(self.tool, code, self.own)
        function["calls"] += 1
        self.frames[id(sys._getframe(1))] = [None, clock()]
        return None

    def resumed(self, code, _offset):
        self.frames[id(sys._getframe(1))] = [None, clock()]

    def line(self, code, line):
        now = clock()
        if now > self.deadline:
            self.is_cut = True
            return self.stop()
        function = self.table.find(code)
        if function is None:
            return sys.monitoring.DISABLE
        running = self.frames.setdefault(id(sys._getframe(1)), [None, now])
        if running[0] is not None:
            running[0][1] += now - running[1]
        cell = function["lines"].setdefault(line, [0, 0])
        cell[0] += 1
        running[0] = cell
        running[1] = clock()
        return None

    def left(self, code, _offset, _value):
        now = clock()
        running = self.frames.pop(id(sys._getframe(1)), None)
        if running is not None and running[0] is not None:
            running[0][1] += now - running[1]


def begin():
    out = os.environ.pop("FAIRTRIAL_PROFILE")
    with open(os.path.join(HERE, "terms.json"), encoding="utf-8") as file:
        terms = json.load(file)
    if terms["pythonpath"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = terms["pythonpath"]
    table = Table(terms, os.path.dirname(os.path.abspath(out)))
    deadline = clock() + int(terms["seconds"] * 1e9)
    tracer = (ByMonitoring if hasattr(sys, "monitoring") else ByTrace)(table, deadline)
    process = os.getpid()

    def end():
        tracer.stop()
        if os.getpid() != process:
            return
        sources = {file: sides[terms["side"]] for file, sides in terms["files"].items()}
        said = {"functions": list(table.said(sources)), "is_cut": tracer.is_cut}
        try:
            with open(out, "x", encoding="utf-8", errors="replace") as file:
                json.dump(said, file)
        except FileExistsError:
            pass  # an earlier interpreter of the same command was traced

    atexit.register(end)
    tracer.start()


def chain():
    """Loads the `sitecustomize` that this one stands before."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    if "FAIRTRIAL_PROFILE" in os.environ:
        begin()
except Exception as error:  # the program runs all the same, and the report says that nothing was traced
    sys.stderr.write("fairtrial: not profiled: %s: %s\n" % (type(error).__name__, error))
finally:
    chain()
