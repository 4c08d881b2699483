"""What an attacker found."""

import gc
import io
import itertools
import sys
import textwrap
import threading

import pytest
import work
from interrupted_host import at_step
from support import WAIT_S, wait_until

import fairtrial as ft
from fairtrial import _echo, _values

BY_VALUE = """
import fairtrial as ft
executor = ft.Executor(1)
def ask(function, *args): return executor.submit(function, *args).result(30)
"""


def by_value(program, text):
    done = program(BY_VALUE + textwrap.dedent(text) + "\nexecutor.shutdown()\n")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_function_finds_globals_as_the_host_has_them(program):
    """PY-30: also those it had before, and those that another function brought meanwhile."""
    text = """
        X = 0
        def f(): return X
        def g(): return X
        def sets():
            global X
            X += 10
            return X
        def outer(): return inner()
        def one(): return 1
        def two(): return 2
        seen = []
        for X in (1, 2, 1, 1, 1, 2, 3, 1):
            seen.append(ask(f))
        print(seen)
        seen = []
        for X, function in ((1, f), (2, g), (1, f), (2, g), (1, f), (2, g), (1, f)):
            seen.append(ask(function))
        print(seen, [ask(sets) for _ in range(4)])
        seen = []
        for inner in (one, two, one, one, two, one, two):
            seen.append(ask(outer))
        print(seen)
    """
    assert by_value(program, text) == [
        "[1, 2, 1, 1, 1, 2, 3, 1]",
        "[1, 2, 1, 2, 1, 2, 1] [11, 11, 11, 11]",
        "[1, 2, 1, 1, 2, 1, 2]",
    ]


def test_what_a_call_did_to_a_function_is_not_the_next_ones(program):
    """PY-30: closures, defaults, attributes, names."""
    text = """
        def closing():
            cell = []
            n = 0
            def f():
                nonlocal n
                n += 1
                cell.append(n)
                return cell
            return f
        def defaulting(items=[], *, more={}):
            items.append(1)
            more[len(more)] = 1
            return len(items), len(more)
        def counting():
            counting.n = getattr(counting, "n", 0) + 1
            return counting.n
        def keyed(*, by: int = 1):
            keyed.__kwdefaults__["by"] = 5
            keyed.__annotations__["x"] = 1
            keyed.__defaults__ = (1,)
            keyed.__name__ = "other"
            return by, len(keyed.__annotations__)
        def named(): return keyed.__name__, keyed.__qualname__, keyed.__module__, keyed.__doc__, keyed.__kwdefaults__
        for function in (closing(), defaulting, counting, keyed):
            print(*[ask(function) for _ in range(4)])
        print(ask(named), ask(named) == ask(named) == named())
    """
    assert by_value(program, text) == [
        "[1] [1] [1] [1]",
        "(1, 1) (1, 1) (1, 1) (1, 1)",
        "1 1 1 1",
        "(1, 2) (1, 2) (1, 2) (1, 2)",
        "('keyed', 'keyed', '__main__', None, {'by': 1}) True",
    ]


def test_attributes_of_a_function_are_seen(program):
    """PY-30"""
    text = """
        def helper(): return getattr(helper, "x", 0), helper.__name__
        def calls(): return helper()
        seen = [ask(calls), ask(helper), ask(calls), ask(helper), ask(calls), ask(helper)]
        helper.x = 5
        seen += [ask(calls), ask(helper)]
        helper.x = 6
        seen += [ask(calls), ask(helper)]
        del helper.x
        helper.__name__ = "renamed"
        print([x for x, _ in seen], ask(helper), ask(calls))
    """
    assert by_value(program, text) == ["[0, 0, 0, 0, 0, 0, 5, 5, 6, 6] (0, 'renamed') (0, 'renamed')"]


def test_modules_that_go_by_value_are_seen_to_change(program, tmp_path):
    """PY-30"""
    (tmp_path / "by_value_module.py").write_text("K = 1\ndef get(): return K\nclass C: k = 1\n")
    text = """
        import cloudpickle, by_value_module as module
        def f(): return module.K
        def g(): return module.get()
        def h(): return module.C.k
        before = [ask(function) for function in (f, g, h, f, g, h)]
        cloudpickle.register_pickle_by_value(module)
        module.K = 2
        after = [ask(function) for function in (f, g, f, g, module.get, module.get)]
        module.K = 3
        print(before, after, [ask(function) for function in (f, g, module.get)])
    """
    assert by_value(program, text) == ["[1, 1, 1, 1, 1, 1] [2, 2, 2, 2, 2, 2] [3, 3, 3]"]


def test_a_wrapper_that_bears_the_name_of_an_importable_function_is_no_such_function(program):
    """PY-30"""
    text = """
        import functools, os.path
        def wrap(counts):
            @functools.wraps(os.path.join)
            def join(*parts): return sum(counts)
            return join
        counts = [1]
        join = wrap(counts)
        def f(): return join("a")
        seen = [ask(f), ask(f)]
        counts.append(1)
        print(seen, ask(f))
    """
    assert by_value(program, text) == ["[1, 1] 2"]


def test_workers_and_hosts_keep_no_large_functions(program):
    """PY-23: a tenth of what twenty closures over 16 MB would hold."""
    text = """
        from fairtrial import _functions
        def resident(): return int(open("/proc/self/statm").read().split()[1]) >> 8
        def large(blob):
            def f(): return len(blob)
            return f
        ask(large(bytes(16 << 20)))
        before = ask(resident), resident()
        for n in range(20):
            ask(large(bytes([n]) * (16 << 20)))
        after = ask(resident), resident()
        BLOB = bytes(16 << 20)
        def blob(): return len(BLOB)
        ask(blob)
        print([new - old < 80 for old, new in zip(before, after)], blob in _functions._known)
    """
    assert by_value(program, text) == ["[True, True] False"]


def check_steps(steps):
    if steps == 0 and sys.version_info >= (3, 12):
        pytest.skip("this interpreter does not trace the instructions of frames that are entered later")
    assert steps > 20, "there was nothing to interrupt"


@pytest.mark.parametrize("size", [10, 100_000, 3_000_000], ids=["small", "mapped", "large"])
@pytest.mark.parametrize("how", ["result", "outcome"])
def test_an_interrupt_loses_no_value(program, size, how):
    """PY-49: wherever it comes."""
    done = program("import interrupted_host\ninterrupted_host.main()\n", how, str(size))
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    check_steps(steps)


def test_a_state_stays_while_it_is_looked_at(one, gate):
    """PY-22: `wait` looks twice before it can be told, and missed what ended in between."""
    future = one.submit(work.pass_gate, gate.path)
    gate.wait_begun()
    told = []
    with future._condition:
        gate.open()
        wait_until(future.done)
        assert future._state == "RUNNING"
        future._when_settled(lambda: told.append(future._state))
    wait_until(lambda: told)
    assert told == ["FINISHED"]


def test_an_error_that_cannot_be_shown_is_told_each_time(one):
    """PY-17, PY-15"""
    future = one.submit(work.return_trouble, "unpickled", "unshowable")
    errors = [future.exception(WAIT_S) for _ in range(2)]
    assert type(errors[0]) is ft.ResultError and errors[0] is errors[1]
    assert "Unshowable: <unprintable>" in str(errors[0])
    with pytest.raises(ft.ResultError):
        future.result(0)
    future = one.submit(work.same, work.TroubleWhenPickled("unshowable"))
    assert isinstance(future.exception(WAIT_S), work.Unshowable)
    assert future.outcome().error.message == "<unprintable>"


SIGNALLED = """
import fairtrial as ft, os, pickle, signal, sys
class Stop(Exception): pass
class Handler:
    def __call__(self, *_): raise Stop
    def stop(self, *_): raise Stop
def exits(*_): sys.exit(7)
def signalled(*_):
    os.kill(os.getpid(), signal.SIGUSR1)
    return 1
class WhenPickled:
    def __reduce__(self): return signalled() and (int, ())
class WhenUnpickled:
    def __reduce__(self): return hosts, ()
host = os.getpid()
def hosts(): return signalled() if os.getpid() == host else WhenUnpickled()
class Unpickled(Exception):
    def __reduce__(self): return hosts_error, ()
def hosts_error(): return signalled() and ValueError()
def fail(): raise Unpickled
executor = ft.Executor(1)
def told(function, *args):
    try:
        return function(*args)
    except BaseException as error:
        return type(error).__name__
"""


def test_what_a_signal_handler_raises_is_for_whoever_was_interrupted(program):
    """PY-15, PY-17: while arguments are pickled, while a value or an exception is unpickled."""
    done = program(
        SIGNALLED
        + """
for handler in (exits, Handler(), Handler().stop, signal.default_int_handler):
    signal.signal(signal.SIGUSR1, handler)
    value, failure = executor.submit(WhenUnpickled), executor.submit(fail)
    print(told(executor.submit, int, WhenPickled()), told(value.result, 30), told(failure.result, 30))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    print(value.result(), told(failure.result), executor.submit(int, WhenPickled()).result(30))
class Exits:
    def __reduce__(self): sys.exit(7)
print(type(executor.submit(int, Exits()).exception()).__name__)
executor.shutdown()
"""
    )
    raised = ["SystemExit", "Stop", "Stop", "KeyboardInterrupt"]
    expected = [line for name in raised for line in (f"{name} {name} {name}", "1 ValueError 0")] + ["PicklingError"]
    assert done.stdout.splitlines() == expected, done.stderr


def test_threads_that_outlive_the_main_one_can_await_calls(program):
    """PY-37: and so can functions that run at the interpreter's end."""
    done = program(
        """
        import atexit, asyncio
        @atexit.register
        def last():  # when all backends are ended
            with ft.LocalBackend(1) as backend:
                print("last", asyncio.run(backend.aexecute(call)).value, flush=True)
        import concurrent.futures, threading
        import fairtrial as ft
        call = ft.Call(source="def f(): return 1", function="f", timeout_s=30)
        several = ft.LocalBackend(1)
        concurrent.futures.wait([several.submit(call)])  # the threads that tell are there
        main = threading.current_thread()
        def thread():
            first = several.submit(call)
            main.join()
            for _ in range(3):
                value = asyncio.run(ft.arun(call)).value
            futures = [first, several.submit(call)]
            told = threading.Event()
            futures[1].add_done_callback(lambda future: told.set())
            ended = sum(future.result() for future in concurrent.futures.as_completed(futures, 30))
            print("thread", value, ended, told.wait(30), flush=True)
        threading.Thread(target=thread).start()
        atexit.register(lambda: print("end", asyncio.run(ft.arun(call)).value, flush=True))
        """
    )
    assert done.stdout == "thread 1 2 True\nend 1\nlast 1\n", done.stderr
    assert done.returncode == 0


def test_a_signal_handler_can_submit_during_the_first_submit():
    """PY-29: at any step of what the first one starts."""
    for step in itertools.count():
        with ft.Executor(1) as executor:
            inner = []
            with at_step(step, lambda: inner.append(executor.submit(work.add, 1, 1)), _echo.__file__):  # noqa: B023
                future = executor.submit(work.add, 1, 2)
            assert future.result(WAIT_S) == 3
            assert [each.result(WAIT_S) for each in inner] == [2] * len(inner)
        if not inner:
            break
    check_steps(step)


def test_output_is_decoded_whole(one, monkeypatch):
    """PY-32: wherever the pieces end."""
    stream = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        with ft.Executor(1) as executor:
            executor.submit(print, "a" + "é" * 300_000).result(WAIT_S)
    assert stream.getvalue() == "a" + "é" * 300_000 + "\n"


def test_a_directory_that_is_gone_is_left_out_of_the_path(program, tmp_path):
    """PY-30"""
    done = program(
        """
        import fairtrial as ft, os, sys, tempfile
        sys.path.insert(0, "")
        os.chdir(tempfile.mkdtemp())
        os.rmdir(os.getcwd())
        ft.Executor(1).shutdown()
        print("made")
        """
    )
    assert done.stdout == "made\n", done.stderr


def test_a_map_that_another_thread_advances_is_refused(one, gate):
    """PY-20: as a generator does."""
    results = one.map(work.pass_gate, [gate.path], [7])
    values = []
    thread = threading.Thread(target=lambda: values.append(next(results)))
    thread.start()
    wait_until(results._lock.locked)
    with pytest.raises(ValueError, match="generator already executing"):
        next(results)
    gate.open()
    thread.join(WAIT_S)
    assert values == [7]
    with pytest.raises(StopIteration):
        next(results)


def test_values_are_copied_when_there_are_many_mappings(one, monkeypatch):
    """PY-46"""
    monkeypatch.setattr(_values, "_MAX_MAPPINGS", 5)
    gc.collect()
    assert not _values._mappings
    kept = [one.submit(bytearray, 100_000).outcome(WAIT_S) for _ in range(8)]
    bodies = [outcome._take()[1] for outcome in kept]
    assert [type(body) for body in bodies] == [memoryview] * 5 + [bytes] * 3
    assert [outcome.value for outcome in kept] == [bytearray(100_000)] * 8
    del bodies, kept
    gc.collect()
    assert not _values._mappings


def test_a_hook_may_shut_its_backend_down(program):
    """EX-93: it cannot wait for its own end."""
    text = """
        import fairtrial as ft
        backend = ft.LocalBackend(1)
        backend.on_complete(lambda event: backend.shutdown())
        print(backend.execute(ft.Call(argv=["true"])).verdict)
        backend.shutdown(kill_after=1e18)
    """
    ended = program(text)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ok\n", "")


def test_a_host_that_ignores_its_childrens_end_can_run_calls(program):
    text = """
        import signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        import fairtrial as ft
        with ft.Executor(1, isolation="fresh") as executor:
            print(executor.submit(abs, -1).result(30))
    """
    ended = program(text)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")


def test_names_that_are_not_text_pass(program, tmp_path):
    """PY-30: the script's directory, its arguments, a call's words."""
    odd = tmp_path / "d\udcff"
    odd.mkdir()
    text = """
        import os, sys
        import fairtrial as ft
        os.chdir(sys.argv[1])
        sys.path.insert(0, os.getcwd())
        def find(): return [os.fsencode(name)[-2:] for name in (sys.argv[1], sys.path[0], os.getcwd())]
        with ft.Executor(1) as executor:
            print(executor.submit(find).result(30))
        print(ft.run(ft.Call(argv=["test", "\\udcff", "=", os.fsdecode(b"\\xff")])).verdict)
        try:
            ft.run(ft.Call(argv=["true", "\\ud800"]))
        except TypeError as error:
            print("argv" in str(error))
    """
    ended = program(text, str(odd))
    assert (ended.stdout.splitlines(), ended.stderr) == ([repr([b"d\xff"] * 3), "ok", "True"], "")
