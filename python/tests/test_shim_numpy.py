"""The shim with numpy, on an interpreter that has it."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from shim_case import dedent  # noqa: E402
from shim_harness import (  # noqa: E402
    ACK,
    FILED,
    NEED,
    RUN,
    SHIM_FILES,
    WAIT_S,
    Zygote,
    pickle_body,
)


class Numpy(unittest.TestCase):
    """With numpy preloaded, on an interpreter that has it."""

    @classmethod
    def setUpClass(cls):
        named = [os.environ.get("FAIRTRIAL_TEST_NUMPY"), sys.executable]
        cls.python = next((python for python in named if python and has_numpy(python)), None)
        if cls.python is None:
            raise unittest.SkipTest("no interpreter with numpy; FAIRTRIAL_TEST_NUMPY names one")

    def zygote(self, *preload):
        zygote = Zygote(self.python, preload)
        self.addCleanup(zygote.end)
        return zygote

    def test_a_matrix_product_works_on_both_sides_of_the_fork(self):
        """EX-6"""
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "warm.py").write_text("import numpy\nnumpy.ones((500, 500)) @ numpy.ones((500, 500))\n")
            zygote = Zygote(self.python, ["warm"], {"PYTHONPATH": directory, "OPENBLAS_NUM_THREADS": "2"})
            self.addCleanup(zygote.end)
        self.assertGreater(zygote.ready["threads"], 1)
        source = "import numpy as np\ndef f(): return float((np.ones((500, 500)) @ np.ones((500, 500))).sum())"
        for _ in range(3):
            self.assertEqual(zygote.worker().source(source).value, 125000000.0)

    def test_workers_do_not_share_numpy_state_unless_seeded(self):
        """EX-89"""
        source = "import numpy as np\ndef f(): return float(np.random.random())"
        for zygote in (self.zygote("numpy"), self.zygote()):
            self.assertEqual(len({zygote.worker().source(source).value for _ in range(3)}), 3)
            seeded = {zygote.worker().source(source, env={"FAIRTRIAL_SEED": str(2**40 + 3)}).value for _ in range(3)}
            self.assertEqual(len(seeded), 1)

    def test_generators_of_a_preload_draw_other_numbers_in_each_worker(self):
        """FA-4"""
        text = """
        from numpy import random
        HELD = {"default": random.default_rng(5), "old": random.RandomState(5)}
        HELD["old"].standard_normal()  # the other one of the pair is waiting
        BITS = [kind(5) for kind in (random.MT19937, random.Philox, random.SFC64)]
        """
        source = """
        from numpy import random
        from drawn import BITS, HELD
        def f():
            drawn = [HELD["default"].random(), HELD["default"].spawn(1)[0].random(), HELD["old"].standard_normal()]
            return tuple(float(n) for n in drawn + [random.Generator(bits).random() for bits in BITS])
        """
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "drawn.py").write_text(dedent(text))
            zygote = Zygote(self.python, ["drawn"], {"PYTHONPATH": directory})
            self.addCleanup(zygote.end)
            again = Zygote(self.python, ["drawn"], {"PYTHONPATH": directory})
            self.addCleanup(again.end)
        drawn = [zygote.worker().source(dedent(source)).value for _ in range(3)]
        self.assertEqual(len(set(sum(drawn, ()))), 18, drawn)
        env = {"FAIRTRIAL_SEED": str(-(2**70))}
        seeded = [one.worker().source(dedent(source), env=env).value for one in (zygote, zygote, again)]
        self.assertEqual(len(set(seeded)), 1, seeded)
        self.assertEqual(len(set(seeded[0])), 6, seeded)

    def test_arrays_travel_as_data_and_the_shim_does_not_import_numpy(self):
        """EX-65, EX-68"""
        zygote = self.zygote()
        self.assertIs(zygote.worker().source("import sys\ndef f(): return 'numpy' in sys.modules").value, False)
        source = "import numpy as np\ndef f(): return np.arange(1 << 18, dtype='f8')"
        reply = zygote.worker().source(source)
        self.assertEqual(reply.kinds, [ACK, RUN, NEED, FILED])
        self.assertGreater(len(reply.payload), 8 << 18)

    def test_array_arguments_arrive_writable(self):
        """EX-61"""
        script = "exec(open(%r).read()); import numpy; x = numpy.arange(%d, dtype='f8')\n"
        script += "print(b''.join(encode(((x,), {}))).hex())"
        change = "def f(x):\n    x[0] = 7\n    return float(x.sum())"
        zygote = self.zygote()
        for size in (3, 1000, 1 << 16):
            command = [self.python, "-c", script % (str(SHIM_FILES / "codec.py"), size)]
            body = bytes.fromhex(subprocess.run(command, stdout=subprocess.PIPE, timeout=WAIT_S).stdout.decode())
            header = {"kind": "source", "source": change, "function": "f"}
            for in_file in (False, True):
                reply = zygote.worker().call(header, body, in_file)
                self.assertEqual(reply.value, size * (size - 1) / 2 + 7)

    def test_pickled_arrays_arrive_writable(self):
        """EX-61"""
        script = "import numpy as np, pickle, sys; sys.stdout.buffer.write(pickle.dumps(np.arange(1 << 17), 5))"
        data = subprocess.run([self.python, "-c", script], stdout=subprocess.PIPE, timeout=WAIT_S).stdout
        worker = self.zygote("numpy").worker()
        header = {"kind": "pickled", "result": "data", "reuse": True}
        call = pickle_body(eval, ("__import__('pickle').loads(d).flags.writeable", {"d": data}), {})
        self.assertIs(worker.call(header, call, in_file=True).value, True)


def has_numpy(python):
    return subprocess.run([python, "-c", "import numpy"], stderr=subprocess.DEVNULL, timeout=WAIT_S).returncode == 0


if __name__ == "__main__":
    unittest.main()
