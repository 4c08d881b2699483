"""Pickled calls of a host, and workers of many calls, on every interpreter found."""

import os
import pickle
import random
import resource
import struct
import sys
import textwrap
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from shim_case import ShimCase, dedent, on_every_interpreter  # noqa: E402
from shim_harness import (  # noqa: E402
    ACK,
    ERROR,
    INITIALIZE,
    READY,
    VALUE,
    Zygote,
    pickle_body,
)


class ShimCalls(ShimCase):
    """What a host sends, and what one call leaves to the next."""

    # -- pickled calls

    def test_a_pickled_call_returns_a_pickle(self):
        """PY-30"""
        reply = self.worker().pickled(sorted, [3, 1, 2])
        self.assertEqual(reply.kinds, [ACK, VALUE])
        self.assertEqual(reply.unpickled, [1, 2, 3])

    def test_pickled_buffers_travel_out_of_band_both_ways(self):
        """EX-54, EX-61"""
        data = bytearray(os.urandom(200000))
        worker = self.worker()
        header = {"kind": "pickled", "result": "pickle", "reuse": True}
        for in_file in (False, True):
            reply = worker.call(header, pickle_body(pickle.PickleBuffer, (pickle.PickleBuffer(data),), {}), in_file)
            self.assertTrue(reply.filed)
            self.assertEqual(bytes(reply.unpickled), bytes(data))

    def test_arguments_that_fail_to_unpickle_are_setup_failed(self):
        """PY-16"""
        worker = self.worker()
        header = {"kind": "pickled", "result": "pickle", "reuse": True}
        for body in (b"cos\n_no_such_name\n.", b"csys\nexit\n(I3\ntR."):
            reply = worker.call(header, struct.pack("<QQ", len(body), 0) + body)
            self.assertEqual((reply.kinds, reply.error["verdict"]), ([ACK, ERROR], "setup_failed"))
        self.assertIn("SystemExit", reply.error["message"])
        self.assertEqual(worker.pickled(abs, -1).unpickled, 1)

    def test_an_exception_of_a_pickled_call_comes_pickled_too(self):
        """PY-13"""
        error = self.worker().pickled(int, "x").error
        self.assertEqual((error["verdict"], error["type"]), ("exception", "ValueError"))
        self.assertEqual(type(pickle.loads(error["exception"])), ValueError)

    def test_a_result_that_does_not_pickle_is_bad_result_with_its_error(self):
        """PY-17"""
        error = self.worker().pickled(memoryview, b"x").error
        self.assertEqual(error["verdict"], "bad_result")
        self.assertEqual(type(pickle.loads(error["exception"])), TypeError)

    def test_calls_sent_together_are_answered_in_order(self):
        """EX-30"""
        worker = self.worker()
        header = {"kind": "pickled", "result": "pickle", "reuse": True}
        count = 40
        for n in range(count):
            worker.start(header, pickle_body(bytes, (n * 5000,), {}))
        for n in range(count):
            self.assertEqual(worker.finish(n + 1).unpickled, bytes(n * 5000))

    def test_terms_that_a_call_shares_with_the_one_before_hold_again(self):
        """EX-33, EX-89"""
        worker = self.worker()
        terms = {"cwd": "/usr", "env": {"OURS": "1", "FAIRTRIAL_SEED": "7"}, "rlimits": [(resource.RLIMIT_NOFILE, 99)]}
        for without in (), ("rlimits",), ("rlimits", "env"), ("rlimits", "env", "cwd"):
            header = {name: value for name, value in terms.items() if name not in without}
            seen = set()
            for _ in range(3):
                cwd = worker.pickled(os.getcwd, **header).unpickled
                limit = worker.pickled(resource.getrlimit, resource.RLIMIT_NOFILE, **header).unpickled[0]
                ours, number = worker.pickled(os.getenv, "OURS", **header).unpickled, None
                if "env" in header:
                    number = worker.pickled(random.random, **header).unpickled
                seen.add((cwd, limit == 99, ours, number))
                worker.pickled(os.chdir, "/tmp", **header)
                worker.pickled(os.unsetenv, "OURS", **header)
                worker.pickled(random.seed, 1, **header)
            self.assertEqual(len(seen), 1, seen)
            cwd, limited, ours, _ = seen.pop()
            self.assertEqual(cwd == "/usr", "cwd" in header)
            self.assertEqual(limited, "rlimits" in header)
            self.assertEqual(ours, "1" if "env" in header else None)

    def test_signals_are_restored_whoever_loaded_the_module_first(self):
        """EX-33"""
        directory = self.directory()
        Path(directory, "sitecustomize.py").write_text("import signal\n")
        a = """
        import signal
        def f():
            signal.signal(signal.SIGUSR1, print)
            signal.signal(signal.SIGALRM, print)
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            signal.setitimer(signal.ITIMER_VIRTUAL, 1000)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        """
        b = """
        import signal
        def f():
            handlers = [signal.getsignal(n) == signal.SIG_DFL for n in (signal.SIGUSR1, signal.SIGALRM)]
            timers = [signal.getitimer(n)[0] for n in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)]
            return handlers, timers, len(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        """
        for env, preload in (({"PYTHONPATH": directory}, []), ({}, ["signal"]), ({}, [])):
            with Zygote(self.python, preload, env=env) as zygote:
                worker = zygote.worker()
                self.assertIsNone(worker.source(dedent(a), reuse=True).value)
                self.assertEqual(worker.source(dedent(b), reuse=True).value, ([True, True], [0.0, 0.0], 0))

    def test_an_initializer_changes_what_later_calls_find(self):
        """PY-24"""
        for in_file in (False, True):
            worker = self.worker()
            self.assertEqual(worker.initialize(os.chdir, "/usr", in_file=in_file).kinds, [ACK, READY])
            worker.pickled(os.chdir, "/")
            self.assertEqual(worker.pickled(os.getcwd).unpickled, "/usr")

    def test_an_initializer_that_raises_says_so(self):
        """PY-24"""
        for function, args, message in (
            (int, ("x",), "ValueError: invalid literal for int() with base 10: 'x'"),
            (sys.exit, (3,), "SystemExit: 3"),
            (os.close, (999,), "OSError: [Errno 9] Bad file descriptor"),
        ):
            reply = self.worker().initialize(function, *args)
            self.assertEqual(reply.kinds, [ACK, ERROR])
            error = reply.error
            self.assertEqual((error["verdict"], error["type"]), ("setup_failed", "InitializerFailed"))
            self.assertEqual(error["message"], message)
            self.assertEqual(str(pickle.loads(error["exception"])), message.partition(": ")[2])

    def test_the_record_of_an_initializer_fits_a_frame(self):
        """PY-24"""
        reply = self.worker().initialize(sys.exit, "x" * 500000)
        self.assertLess(len(reply.payload), 65536)
        self.assertIn("bytes dropped", reply.error["message"])

    def test_a_worker_is_where_its_host_is(self):
        """PY-30"""
        worker = self.worker()
        worker.send(INITIALIZE, {"cwd": "/usr", "env": {"HOSTS": "own"}}, b"")
        for cwd, env, expected in (
            (None, None, ("/usr", "own")),
            ("/", {"HOSTS": "other"}, ("/", "other")),
            (None, {"HOSTS": None}, ("/usr", None)),
            (None, None, ("/usr", "own")),
        ):
            here = worker.pickled(os.getcwd, cwd=cwd, env=env).unpickled
            self.assertEqual((here, worker.pickled(os.getenv, "HOSTS", cwd=cwd, env=env).unpickled), expected)

    def test_a_worker_that_cannot_be_where_its_host_is_says_so(self):
        """PY-30"""
        worker = self.worker()
        worker.send(INITIALIZE, {"cwd": "/no/such/directory"}, b"")
        error = worker.pickled(os.getcwd).error
        self.assertEqual(error["verdict"], "setup_failed")
        self.assertIn("cannot enter cwd `/no/such/directory`", error["message"])

    def test_a_limit_on_processor_time_is_a_calls_own(self):
        """EX-33"""
        worker = self.worker()
        burn = "import time\ndef f():\n    while time.process_time() < 1.1: pass"
        self.assertIsNone(worker.source(burn, reuse=True).value)
        reply = worker.pickled(os.getpid, rlimits=[(resource.RLIMIT_CPU, 1)])
        self.assertEqual(reply.unpickled, worker.pid)

    def test_a_host_gives_its_path_and_arguments_before_anything_is_preloaded(self):
        """PY-30"""
        directory = self.directory()
        text = "import sys\nargv = list(sys.argv)\ndef f(): return argv, sys.path[0]\n"
        Path(directory, "of_the_host.py").write_text(text)
        path = [directory] + self.worker().source("import sys\ndef f(): return sys.path").value
        with Zygote(self.python, ["of_the_host"], sys_path=path, argv=["a", "b"]) as zygote:
            self.assertTrue(zygote.ready, zygote.error)
            body = struct.pack("<QQ", 23, 0) + b"(cof_the_host\nf\n(t}t.\n"
            reply = zygote.worker().call({"kind": "pickled", "reuse": True}, body)
            self.assertEqual(reply.value, (["a", "b"], directory))

    def test_a_hosts_worker_is_not_the_main_process(self):
        """PY-29"""
        path = self.worker().source("import sys\ndef f(): return sys.path").value
        source = "import multiprocessing\ndef f(): return multiprocessing.current_process().name"
        for preload in ([], ["multiprocessing"]):
            with Zygote(self.python, preload, sys_path=path, argv=[]) as zygote:
                worker = zygote.worker()
                worker.pickled(os.getpid)  # what is to be done after an import outlasts a call
                self.assertEqual(worker.source(source, reuse=True).value, "FairtrialWorker-%d" % worker.pid)

    # -- reuse

    def pollute(self, statement, report, **header):
        """What B reports with and without A before it, on one reused worker each."""
        a = "import os, sys, signal, resource, builtins\ndef f():\n%s" % textwrap.indent(dedent(statement), "    ")
        b = "import os, sys, signal\ndef f(): return %s" % report
        alone = self.worker().source(b, reuse=True).value
        worker = self.worker()
        self.assertIsNotNone(worker.source(a, reuse=True, **header))
        after = worker.source(b, reuse=True)
        self.assertIsNotNone(after, "the worker died")
        self.assertEqual(after.value, alone)

    def test_reuse_restores_what_a_call_changed(self):
        """EX-33"""
        environ = "sorted(os.environ.items()), os.popen('env').read().count('POLLUTED')"
        handlers = "[str(signal.getsignal(n)) for n in range(1, 32)], len(signal.pthread_sigmask(0, []))"
        streams = "print('x'), sys.stdin.read(), sys.stdout.closed, sys.stdout.fileno(), sys.stderr.fileno()"
        for statement, report in (
            ("os.chdir('/usr')", "os.getcwd()"),
            ("os.chdir('/usr'); sys.exit(3)", "os.getcwd()"),
            ("os.chdir('/usr'); raise KeyError", "os.getcwd()"),
            ("sys.path.insert(0, '/x')", "sys.path"),
            ("sys.path = ['/x']", "sys.path"),
            ("sys.argv.append('x')", "sys.argv"),
            ("sys.argv = None", "sys.argv"),
            ("os.environ['POLLUTED'] = '1'; del os.environ['PATH']", environ),
            ("os.environ.clear()", "sorted(os.environ.items())"),
            ("os.environ = {}", "sorted(os.environ.items())"),
            ("os.umask(0o777)", "os.umask(0o22)"),
            ("signal.signal(signal.SIGTERM, print); signal.signal(signal.SIGINT, signal.SIG_IGN)", handlers),
            ("signal.pthread_sigmask(0, [signal.SIGUSR1])", handlers),
            ("signal.setitimer(0, 9); signal.setitimer(1, 9)", "[signal.getitimer(n) for n in (0, 1, 2)]"),
            ("sys.stdout.close(); sys.stdin = None", streams),
            ("sys.stderr.detach(); sys.stdout = sys.stderr", streams),
            ("del sys.stdout, sys.path, sys.argv", "sys.path, sys.argv, sys.stdout.closed"),
            ("del os.environ", "sorted(os.environ)"),
            ("[os.close(n) for n in (0, 1, 2)]", streams),
            ("os.dup2(1, 0)", "os.readlink('/proc/self/fd/0')"),
            ("resource.setrlimit(7, (50, resource.getrlimit(7)[1]))", "__import__('resource').getrlimit(7)"),
            ("sys.setrecursionlimit(60)", "sys.getrecursionlimit()"),
            ("sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)", "sys.gettrace(), sys.getprofile()"),
            ("globals()['leak'] = 1", "'leak' in globals()"),
        ):
            with self.subTest(statement):
                self.pollute(statement, report)

    def test_reuse_survives_patched_functions(self):
        """EX-33"""
        statement = """
            import struct, marshal, _signal, io, posix
            def broken(*args, **kwargs): raise SystemExit("patched")
            for module in (os, posix, struct, marshal, signal, _signal, io, builtins):
                for name, value in list(vars(module).items()):
                    if not name.startswith("__") and callable(value) and type(value) is not type:
                        setattr(module, name, broken)
        """
        worker = self.worker()
        a = "import os, sys, signal, builtins\ndef f():\n%s" % textwrap.indent(dedent(statement), "    ")
        self.assertIsNotNone(worker.source(a, reuse=True))
        self.assertEqual(worker.source("def f(x): return x * 2", 4, reuse=True).value, 8)
        self.assertEqual(worker.source("def f(x): return x / 0", 4, reuse=True).error["type"], "ZeroDivisionError")

    def test_reuse_survives_an_emptied_module_table(self):
        """EX-33"""
        worker = self.worker()
        self.assertIsNotNone(worker.source("import sys\ndef f(): sys.modules.clear()", reuse=True))
        reply = worker.source("def f(): return 4", reuse=True)
        if reply is None:
            self.skipTest("the worker was replaced, which EX-33 allows")
        self.assertEqual(reply.value, 4)

    def test_a_worker_that_cannot_be_restored_ends_before_the_next_call(self):
        """EX-33"""
        directory = self.directory()
        worker = self.worker()
        inner = os.path.join(directory, "gone")
        os.mkdir(inner)
        source = "import os\ndef f(d):\n    os.chdir('/')\n    os.rmdir(d)\n    os.closerange(200, 300)\n    return 1"
        worker.source(source, inner, reuse=True, cwd=inner)
        self.assertEqual(os.WIFEXITED(worker.wait()), True)

    def test_modules_from_python_path_are_forgotten(self):
        """EX-33, EX-34"""
        worker = self.worker()
        seen = []
        for n in range(3):
            directory = self.directory()
            Path(directory, "helper.py").write_text("N = %d\n" % n)
            Path(directory, "space").mkdir()
            Path(directory, "space", "inner.py").write_text("N = %d\n" % n)
            source = "import helper, space.inner\ndef f(): return helper.N, space.inner.N"
            seen.append(worker.source(source, path=[directory], reuse=True).value)
        self.assertEqual(seen, [(0, 0), (1, 1), (2, 2)])
        source = "import sys\nours = 'helper', 'space', 'space.inner'\n"
        source += "def f(): return [n for n in ours if n in sys.modules], len(sys.path), len(sys.path_importer_cache)"
        names, path, cache = worker.source(source, reuse=True).value
        self.assertEqual(names, [])
        self.assertEqual(path, self.worker().source(source).value[1])
        self.assertLess(cache, 30)

    def test_a_reused_worker_keeps_its_pid_and_answers_after_errors(self):
        """EX-37"""
        worker = self.worker()
        pids = set()
        for n in range(20):
            worker.source("def f(): raise SystemExit", reuse=True)
            pids.add(worker.source("import os\ndef f(): return os.getpid()", reuse=True).value)
        self.assertEqual(pids, {worker.pid})

    def test_env_and_cwd_of_one_call_do_not_reach_the_next(self):
        """EX-33, EX-42"""
        worker = self.worker()
        source = "import os\ndef f(): return os.environ.get('A'), os.getcwd()"
        self.assertEqual(worker.source(source, reuse=True, env={"A": "1"}, cwd="/usr").value, ("1", "/usr"))
        self.assertEqual(worker.source(source, reuse=True, env={"A": "2"}, cwd="/tmp").value, ("2", "/tmp"))
        self.assertEqual(worker.source(source, reuse=True).value, (None, "/"))
        self.assertEqual(worker.source(source, reuse=True, cwd="/nowhere").error["verdict"], "setup_failed")
        self.assertEqual(worker.source(source, reuse=True).value, (None, "/"))

    def test_limits_of_one_call_do_not_reach_the_next(self):
        """EX-33"""
        worker = self.worker()
        source = "import resource\ndef f(): return resource.getrlimit(7)[0]"
        before = worker.source(source, reuse=True).value
        self.assertEqual(worker.source(source, reuse=True, rlimits=[(7, 99)]).value, 99)
        self.assertEqual(worker.source(source, reuse=True, rlimits=[(7, 99)]).value, 99)
        self.assertEqual(worker.source(source, reuse=True).value, before)


globals().update(on_every_interpreter(ShimCalls))

if __name__ == "__main__":
    unittest.main()
