"""The shim, against a harness that plays launcher and engine: zygotes, and what a call finds."""

import ast
import os
import random
import resource
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from shim_case import ShimCase, dedent, on_every_interpreter  # noqa: E402
from shim_harness import (  # noqa: E402
    ACK,
    CALL,
    ERROR,
    PARTS,
    RUN,
    SHIM_FILES,
    VALUE,
    WAIT_S,
    Zygote,
    frame,
    shim_text,
)


class Shim(ShimCase):
    """A zygote, its workers, and the surroundings of a call."""

    # -- the zygote

    def test_a_ready_zygote_names_its_version_and_pid(self):
        """EX-6"""
        ready = self.zygote.ready
        self.assertEqual(ready["pid"], self.zygote.pid)
        self.assertEqual(ready["threads"], 1)
        self.assertRegex(ready["version"], r"^3\.\d+\.\d+$")

    def test_a_worker_is_a_child_of_the_launcher(self):
        """EX-7"""
        reply = self.run_source("import os\ndef f(): return os.getppid(), os.getsid(0) == os.getpid()")
        self.assertEqual(reply.value, (os.getpid(), True))

    def test_a_call_ends_normally_after_its_zygote_was_killed(self):
        """EX-7"""
        zygote = self.zygote_with()
        worker = zygote.worker()
        os.kill(zygote.pid, signal.SIGKILL)
        zygote.reap(zygote.pid)
        self.assertEqual(worker.source("def f(): return 5").value, 5)

    def test_a_zygote_ends_when_the_launcher_hangs_up(self):
        """EX-3"""
        zygote = self.zygote_with()
        zygote.launcher.close()
        self.assertEqual(zygote.reap(zygote.pid), 0)

    def test_a_zygote_without_clone_forks_twice(self):
        """EX-7"""
        text = shim_text().replace(b"_SYS_CLONE3 = 435", b"_SYS_CLONE3 = 100000")
        text = text.replace(b'"x86_64"', b'"_"').replace(b'"aarch64"', b'"__"')
        zygote = Zygote(self.python, text=text)
        self.addCleanup(zygote.end)
        for _ in range(3):
            reply = zygote.worker().source("import os\ndef f(): return os.getppid()")
            self.assertEqual(reply.value, os.getpid())

    def test_a_zygote_without_clone3_uses_clone(self):
        """EX-7"""
        zygote = Zygote(self.python, text=shim_text().replace(b"_SYS_CLONE3 = 435", b"_SYS_CLONE3 = 100000"))
        self.addCleanup(zygote.end)
        reply = zygote.worker().source("import os\ndef f(): return os.getppid()")
        self.assertEqual(reply.value, os.getpid())

    def test_preloaded_modules_are_there(self):
        """EX-5"""
        reply = self.zygote_with("json").worker().source("import sys\ndef f(): return 'json' in sys.modules")
        self.assertIs(reply.value, True)

    def test_a_failing_preload_is_setup_failed_with_its_traceback(self):
        """EX-5"""
        directory = self.directory()
        Path(directory, "broken.py").write_text("def g():\n    raise SystemExit(3)\ng()\n")
        for name, kind in (("no_such_module", "ModuleNotFoundError"), ("broken", "SystemExit")):
            zygote = self.zygote_with(name, env={"PYTHONPATH": directory})
            self.assertEqual(zygote.error["verdict"], "setup_failed")
            self.assertEqual(zygote.error["type"], kind)
            self.assertIn(name, zygote.error["message"])
        self.assertIn("in g", zygote.error["traceback"])
        self.assertNotIn("importlib", zygote.error["traceback"])

    def test_a_zygote_with_threads_goes_on_without_them(self):
        """EX-6"""
        directory = self.directory()
        start = "threading.Thread(target=time.sleep, args=(999,), daemon=True).start()"
        Path(directory, "busy.py").write_text("import threading, time\n%s\n" % start)
        zygote = self.zygote_with("busy", env={"PYTHONPATH": directory})
        self.assertEqual(zygote.ready["threads"], 2)
        self.assertNotEqual(zygote.pid, zygote.spawned)
        source = "import os\ndef f(): return os.getppid(), len(os.listdir('/proc/self/task'))"
        self.assertEqual(zygote.worker().source(source).value, (os.getpid(), 1))

    def test_a_preload_is_resolved_without_the_cwd(self):
        """EX-5, EX-10"""
        directory = self.directory()
        Path(directory, "local_module.py").write_text("")
        here = os.getcwd()
        os.chdir(directory)
        try:
            zygote = self.zygote_with("local_module")
        finally:
            os.chdir(here)
        self.assertEqual(zygote.error["type"], "ModuleNotFoundError")

    # -- surroundings of a call

    def test_the_call_is_acknowledged_then_run_then_answered(self):
        """EX-28"""
        self.assertEqual(self.run_source("def f(): return 1").kinds, [ACK, RUN, VALUE])

    def test_the_acknowledgement_comes_before_anything_is_decoded(self):
        """EX-45"""
        worker = self.worker()
        worker.stream.send(frame(CALL, b"\xff\xff\xff\x00junk", 7))
        self.assertEqual(worker.stream.read()[:2], (ACK, 7))

    def test_a_worker_has_only_descriptors_0_to_2_and_its_socket(self):
        """EX-2"""
        source = "import os\ndef f(): return sorted(int(n) for n in os.listdir('/proc/self/fd'))"
        descriptors = self.run_source(source).value
        self.assertEqual(descriptors[:4], [0, 1, 2, 3], descriptors)  # 3 is the listing's own
        self.assertEqual(len(descriptors), 5)
        self.assertGreaterEqual(descriptors[4], 200)

    def test_a_child_process_inherits_no_descriptor_of_the_shim(self):
        """EX-2"""
        source = """
            import subprocess
            def f(): return subprocess.run(["ls", "/proc/self/fd"], stdout=subprocess.PIPE, close_fds=False).stdout
        """
        self.assertEqual(self.run_source(source).value.split(), [b"0", b"1", b"2", b"3"])

    def test_stdin_is_dev_null(self):
        """EX-36"""
        source = "import os, sys\ndef f(): return sys.stdin.read(), os.readlink('/proc/self/fd/0')"
        self.assertEqual(self.run_source(source).value, ("", "/dev/null"))

    def test_signals_start_as_specified(self):
        """EX-35"""
        source = """
            import signal
            def f():
                names = ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGXFSZ"]
                return (
                    signal.getsignal(signal.SIGINT) is signal.default_int_handler,
                    {name: signal.getsignal(getattr(signal, name)) == signal.SIG_DFL for name in names},
                    signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
                    len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
                )
        """
        sigint, defaults, sigpipe, blocked = self.run_source(source).value
        self.assertTrue(sigint and sigpipe and all(defaults.values()), defaults)
        self.assertEqual(blocked, 0)

    def test_main_is_clean_and_the_candidate_is_not_main(self):
        """EX-32"""
        source = """
            import sys
            ran = __name__ == "__main__"
            def f(): return ran, __file__, sorted(n for n in vars(sys.modules["__main__"]) if not n.startswith("__"))
        """
        self.assertEqual(self.run_source(source).value, (False, "<source>", []))

    def test_a_candidate_has_the_real_builtins(self):
        """EX-33"""
        source = """
            import builtins
            def f():
                builtins.len = lambda x: 42
                __builtins__["abs"] = None
                return len("abc"), __builtins__ is vars(builtins)
        """
        self.assertEqual(self.run_source(source).value, (42, True))

    def test_a_pickled_eval_does_not_see_the_shim(self):
        """EX-33"""
        worker = self.worker()
        names = worker.pickled(eval, "sorted(n for n in globals() if n[:2] != '__')").unpickled
        self.assertEqual(names, [])

    def test_the_crash_handler_of_python_works_when_asked_for(self):
        """EX-35"""
        zygote = self.zygote_with(env={"PYTHONFAULTHANDLER": "1"})
        worker = zygote.worker()
        self.assertIsNone(worker.source("import os, signal\ndef f(): os.kill(os.getpid(), signal.SIGSEGV)"))
        self.assertEqual(os.WTERMSIG(worker.wait()), signal.SIGSEGV)
        self.assertIn(b"Segmentation fault", worker.output("stderr"))

    def test_a_worker_out_of_memory_still_answers(self):
        """EX-37"""
        source = "def f():\n    x = []\n    while True: x.append(bytes(100000))"
        error = self.error_of(source, rlimits=[(resource.RLIMIT_AS, 300 << 20)])
        self.assertEqual((error["verdict"], error["type"]), ("exception", "MemoryError"))
        self.assertIn("in f", error["traceback"])

    def test_the_shim_is_in_no_module_table(self):
        """EX-33"""
        source = "import sys\ndef f(): return [n for n in sys.modules if 'fairtrial' in n or 'shim' in n]"
        self.assertEqual(self.run_source(source).value, [])

    def test_the_environment_of_a_call_is_set_and_unset(self):
        """EX-42"""
        source = """
            import os, subprocess
            def f():
                echoed = subprocess.run(["/bin/sh", "-c", "echo $A"], stdout=subprocess.PIPE).stdout
                return os.environ.get("A"), os.environ.get("PATH"), echoed
        """
        reply = self.run_source(source, env={"A": "x\xe9", "PATH": None})
        self.assertEqual(reply.value, ("x\xe9", None, "x\xe9\n".encode()))

    def test_the_worker_id_is_in_the_environ_file(self):
        """EX-87"""
        source = """
            import os, subprocess
            def f():
                mine = open("/proc/self/environ", "rb").read()
                pid = os.fork()
                if pid == 0:
                    import time
                    time.sleep(30)
                return os.environ["FAIRTRIAL_WORKER_ID"], mine, open("/proc/%d/environ" % pid, "rb").read()
        """
        name, mine, child = self.run_source(source, env={"FAIRTRIAL_WORKER_ID": "0123456789ab"}).value
        self.assertEqual(name, "0123456789ab")
        self.assertIn(b"FAIRTRIAL_WORKER_ID=0123456789ab\0", mine)
        self.assertIn(b"FAIRTRIAL_WORKER_ID=0123456789ab\0", child)

    def test_a_call_starts_in_its_cwd(self):
        """EX-36"""
        directory = self.directory()
        self.assertEqual(self.run_source("import os\ndef f(): return os.getcwd()", cwd=directory).value, directory)

    def test_a_missing_cwd_is_setup_failed(self):
        """EX-36"""
        reply = self.run_source("def f(): pass", cwd="/no/such/place")
        self.assertEqual(reply.kinds, [ACK, ERROR])
        self.assertEqual(reply.error["verdict"], "setup_failed")
        self.assertEqual(reply.error["message"], "cannot enter cwd `/no/such/place`: No such file or directory")

    def test_limits_are_set(self):
        """EX-62"""
        source = "import resource\ndef f(): return resource.getrlimit(resource.RLIMIT_NOFILE)"
        reply = self.run_source(source, rlimits=[(resource.RLIMIT_NOFILE, 77)])
        self.assertEqual(reply.value, (77, 77))

    def test_modules_in_the_cwd_change_nothing_in_the_shim(self):
        """EX-10"""
        directory = self.directory()
        for name in ("signal", "json", "sitecustomize", "traceback", "linecache", "struct", "_pickle", "asyncio"):
            Path(directory, name + ".py").write_text("raise RuntimeError('imported from the cwd')\n")
        worker = self.worker()
        error = worker.source("def f(): return 1 / 0", cwd=directory, reuse=True).error
        self.assertEqual(error["type"], "ZeroDivisionError")
        self.assertEqual(worker.pickled(len, (1, 2), cwd=directory).unpickled, 2)

    def test_a_python_path_entry_shadows_a_preloaded_module(self):
        """EX-34"""
        directory = self.directory()
        Path(directory, "json.py").write_text("mine = True\n")
        Path(directory, "colorsys").mkdir()  # a directory without __init__ is no rival
        worker = self.zygote_with("json", "json.decoder", "colorsys").worker()
        source = "import json, colorsys, sys\n"
        source += "def f(): return json.mine, colorsys.__file__ is None, 'json.decoder' in sys.modules"
        self.assertEqual(worker.source(source, path=[directory], reuse=True).value, (True, False, False))
        source = "import sys, json\ndef f(): return hasattr(json, 'mine'), json.loads('1')"
        self.assertEqual(worker.source(source, reuse=True).value, (False, 1))

    def test_python_path_is_resolved_and_without_duplicates(self):
        """EX-34"""
        directory = self.directory()
        source = "import sys\ndef f(): return sys.path"
        plain = self.run_source(source).value
        path = self.run_source(source, path=[directory, directory + "/./", directory], cwd="/").value
        self.assertEqual(path, [directory] + plain)
        self.assertNotIn("", path)

    # -- output

    def test_output_is_there_before_the_reply_and_after_a_crash(self):
        """EX-77"""
        source = """
            import os, sys
            print("module")
            def f():
                print("part", end="")
                print("err", end="", file=sys.stderr)
                os.abort()
        """
        worker = self.worker()
        self.assertIsNone(worker.source(dedent(source)))
        self.assertEqual(os.WTERMSIG(worker.wait()), signal.SIGABRT)
        self.assertEqual(worker.output("stdout"), b"module\npart")
        self.assertIn(b"err", worker.output("stderr"))

    def test_output_of_c_code_and_children_is_captured(self):
        """EX-77"""
        source = """
            import ctypes, os
            def f():
                ctypes.CDLL(None).printf(b"from c")
                os.system("echo from a child")
        """
        worker = self.worker()
        worker.source(dedent(source))
        self.assertEqual(worker.output(), b"from cfrom a child\n")

    def test_a_candidate_may_close_or_replace_its_streams(self):
        """EX-8, EX-77"""
        for line in ("sys.stdout.close()", "sys.stdout = 3", "del sys.stdout", "sys.stdout.detach()"):
            self.assertEqual(self.run_source("import sys\ndef f():\n    %s\n    return 1" % line).value, 1)

    def test_a_fresh_worker_waits_to_be_killed_whatever_atexit_and_threads_do(self):
        """EX-8"""
        source = """
            import atexit, threading, time
            def f():
                atexit.register(time.sleep, 999)
                threading.Thread(target=time.sleep, args=(999,)).start()
                return 1
        """
        worker = self.worker()
        self.assertEqual(worker.source(dedent(source)).value, 1)
        worker.stream.sock.shutdown(1)
        self.assertEqual(worker.wait(), 0)

    # -- seeds

    def test_workers_of_one_zygote_do_not_share_random_state(self):
        """EX-89"""
        zygote = self.zygote_with("random")
        source = "import random\ndef f(): return random.random()"
        self.assertEqual(len({zygote.worker().source(source).value for _ in range(4)}), 4)

    def test_a_seed_decides_random_numbers(self):
        """EX-89"""
        random.seed(7)
        expected = random.random()
        source = "import random\ndef f(): return random.random()"
        for zygote in (self.zygote, self.zygote_with("random")):
            worker = zygote.worker()
            self.assertEqual(worker.source(source, env={"FAIRTRIAL_SEED": "7"}).value, expected)

    def test_a_seed_that_is_no_integer_is_setup_failed(self):
        """EX-89"""
        error = self.error_of("def f(): pass", env={"FAIRTRIAL_SEED": "x"})
        self.assertEqual(error["verdict"], "setup_failed")


class Bootstrap(unittest.TestCase):
    def test_an_old_interpreter_says_so(self):
        """EX-11"""
        found = sorted(Path.home().glob(".pyenv/versions/*/bin/python"))
        old = [python for python in found if python.parts[-3].startswith(("2.7", "3.6", "3.7"))]
        if not old:
            self.skipTest("no interpreter older than 3.8 here")
        for python in old:
            command = [str(python), "-c", (SHIM_FILES / "bootstrap.py").read_text()]
            done = subprocess.run(command, stderr=subprocess.PIPE, timeout=WAIT_S)
            self.assertEqual(done.returncode, 1)
            expected = "Python %s is too old: fairtrial needs 3.8 or later\n" % python.parts[-3]
            self.assertEqual(done.stderr.decode(), expected)

    def test_no_name_is_defined_in_two_parts(self):
        """The parts share one namespace."""
        owners = {}
        for part in PARTS:
            for node in ast.parse((SHIM_FILES / part).read_text()).body:
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    names = [node.name]
                elif isinstance(node, ast.Assign):
                    names = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
                else:
                    names = []
                for name in names:
                    self.assertIn(owners.setdefault(name, part), (part,), name)


globals().update(on_every_interpreter(Shim))

if __name__ == "__main__":
    unittest.main()
