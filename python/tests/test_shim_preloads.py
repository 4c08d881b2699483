"""What preloads hold and workers must not share: descriptors, memory, generators of random numbers."""

import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from shim_case import ShimCase, dedent, on_every_interpreter  # noqa: E402
from shim_harness import Zygote  # noqa: E402

OPEN_DESCRIPTORS = """
import os

def f():
    targets = {}
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            targets[str(number)] = os.readlink("/proc/self/fd/%d" % number)
        except OSError:
            pass  # that of the listing
    return targets
"""


class Preloads(ShimCase):
    def preloading(self, sharing=(), **modules):
        """A zygote that preloaded these modules, in this order; the memory of those `sharing` stays shared."""
        directory = self.directory()
        for name, text in modules.items():
            Path(directory, name + ".py").write_text(dedent(text))
        zygote = Zygote(self.python, list(modules), {"PYTHONPATH": directory}, preload_shared=list(sharing))
        self.addCleanup(zygote.end)
        return zygote

    def values(self, zygote, source, count=3, **header):
        return [zygote.worker().source(dedent(source), **header).value for _ in range(count)]

    # -- descriptors

    def test_no_descriptor_of_a_preload_is_open_in_a_call(self):
        """FA-2"""
        directory = self.directory()
        secret = Path(directory, "secret")
        secret.write_text("the key")
        zygote = self.preloading(
            holder="""
            import os, socket
            DIRECTORY = os.open(%r, os.O_RDONLY | os.O_DIRECTORY)
            SECRET = open(%r, "r+")
            HIGH = os.dup2(SECRET.fileno(), 700)
            PAIR = socket.socketpair()
            """
            % (directory, str(secret))
        )
        source = """
        import os, holder

        def outcome_of(action):
            try:
                return repr(action())
            except OSError as error:
                return error.strerror

        def f():
            numbers = {str(n): os.readlink("/proc/self/fd/%d" % n) for n in (holder.DIRECTORY, holder.HIGH)}
            return numbers, [
                outcome_of(lambda: os.open("secret", os.O_RDONLY, dir_fd=holder.DIRECTORY)),
                outcome_of(lambda: os.fchdir(holder.DIRECTORY)),
                outcome_of(lambda: os.pread(holder.HIGH, 100, 0)),
                outcome_of(lambda: os.pwrite(holder.SECRET.fileno(), b"overwritten", 0)),
                outcome_of(lambda: holder.SECRET.read()),
                outcome_of(lambda: holder.PAIR[0].send(b"to the next call")),
            ]
        """
        for targets, outcomes in self.values(zygote, source):
            self.assertEqual(set(targets.values()), {"/dev/null"})
            self.assertEqual(outcomes[:2], [os.strerror(20)] * 2)  # ENOTDIR
            self.assertEqual(outcomes[2:5], [os.strerror(9)] * 3)  # EBADF
            self.assertIn(outcomes[5], [os.strerror(9), os.strerror(88)])  # EBADF, ENOTSOCK
        self.assertEqual(secret.read_text(), "the key")

    def test_only_the_shims_own_descriptors_are_open_in_a_call(self):
        """FA-2"""
        plain = self.values(self.zygote, OPEN_DESCRIPTORS, 1)[0]
        zygote = self.preloading(holder="import os\nKEPT = [os.open('/etc/passwd', os.O_RDONLY) for _ in range(20)]")
        held = self.values(zygote, OPEN_DESCRIPTORS, 1)[0]
        self.assertEqual({target for target in held.values() if target.startswith("/")}, {"/dev/null"})
        kinds = [sorted(target.split(":")[0] for target in targets.values()) for targets in (plain, held)]
        self.assertEqual(kinds[1], sorted(kinds[0] + ["/dev/null"] * 20))

    def test_a_stale_object_of_a_preload_never_closes_a_descriptor_of_the_call(self):
        """FA-2"""
        zygote = self.preloading(holder="HELD = [open('/etc/passwd') for _ in range(5)]")
        source = """
        import gc, os, tempfile, holder

        def f():
            with tempfile.TemporaryDirectory() as directory:
                mine = [open(os.path.join(directory, str(n)), "w") for n in range(5)]
                holder.HELD.clear()
                gc.collect()
                return [file.write("mine") for file in mine] and [os.fstat(file.fileno()).st_size for file in mine]
        """
        self.assertEqual(self.values(zygote, source, 1), [[0] * 5])

    def test_the_zygote_says_which_descriptors_it_took_away(self):
        """FA-2"""
        zygote = self.preloading(holder="import os\nKEPT = os.dup2(os.open('/etc/passwd', os.O_RDONLY), 300)")
        self.assertEqual(zygote.ready["closed_fds"][300], "/etc/passwd (preload `holder`)")
        self.assertEqual(len(zygote.ready["closed_fds"]), 2)
        self.assertEqual(self.zygote.ready["closed_fds"], {})

    def test_a_preload_may_keep_devices_without_state(self):
        """FA-2"""
        zygote = self.preloading(
            holder="import os\nRANDOM, NULL = (os.open('/dev/' + n, os.O_RDWR) for n in ('urandom', 'null'))"
        )
        self.assertEqual(zygote.ready["closed_fds"], {})
        source = "import os, holder\ndef f(): return len(os.read(holder.RANDOM, 9)), os.write(holder.NULL, b'four')"
        self.assertEqual(self.values(zygote, source, 1), [(9, 4)])

    # -- memory

    def test_shared_memory_of_a_preload_does_not_carry_from_call_to_call(self):
        """FA-3"""
        zygote = self.preloading(
            shared="""
            import ctypes, mmap, multiprocessing, tempfile
            COUNTER = multiprocessing.Value("i", 5)
            LOCK = multiprocessing.Lock()
            ANONYMOUS = mmap.mmap(-1, 3 << 20)
            ANONYMOUS[2 << 20] = 7
            FILE = tempfile.TemporaryFile()
            FILE.write(b"x" * 100)
            FILE.flush()
            MAPPED = mmap.mmap(FILE.fileno(), 100)
            """
        )
        source = """
        import shared

        def f():
            found = shared.COUNTER.value, shared.ANONYMOUS[2 << 20], shared.MAPPED[:3], shared.LOCK.acquire(timeout=60)
            shared.COUNTER.value += 1
            shared.ANONYMOUS[2 << 20] = 8
            shared.MAPPED[:3] = b"abc"
            return found
        """
        self.assertEqual(self.values(zygote, source), [(5, 7, b"xxx", True)] * 3)

    def test_shared_memory_of_a_named_preload_stays_shared(self):
        """FA-3: the memory is that of the first module whose import mapped it."""
        text = "import mmap\nCOUNTER = mmap.mmap(-1, 4096)"
        zygote = self.preloading(sharing=["second"], first=text, second="import first\n" + text, third=text)
        source = """
            import first, second, third

            def f():
                for module in (first, second, third):
                    module.COUNTER[0] += 1
                return [module.COUNTER[0] for module in (first, second, third)]
        """
        self.assertEqual(self.values(zygote, source), [[1, 1, 1], [1, 2, 1], [1, 3, 1]])

    def test_children_of_a_call_still_share_that_memory_with_it(self):
        """FA-3"""
        zygote = self.preloading(
            shared="import multiprocessing\nCOUNTER = multiprocessing.Value('i', 0)\nLOCK = multiprocessing.Lock()"
        )
        source = """
        import os, shared

        def f():
            children = []
            for _ in range(4):
                pid = os.fork()
                if pid == 0:
                    for _ in range(200):
                        with shared.LOCK:
                            shared.COUNTER.value += 1
                    os._exit(0)
                children.append(pid)
            for pid in children:
                os.waitpid(pid, 0)
            return shared.COUNTER.value
        """
        self.assertEqual(self.values(zygote, source), [800] * 3)

    def test_one_object_mapped_twice_stays_one(self):
        """FA-3"""
        zygote = self.preloading(
            twice="""
            import mmap, tempfile
            FILE = tempfile.TemporaryFile()
            FILE.truncate(3 * mmap.PAGESIZE)
            ALL = mmap.mmap(FILE.fileno(), 3 * mmap.PAGESIZE)
            LAST = mmap.mmap(FILE.fileno(), mmap.PAGESIZE, offset=2 * mmap.PAGESIZE)
            """
        )
        source = """
        import mmap, twice

        def f():
            before = twice.LAST[0]
            twice.ALL[2 * mmap.PAGESIZE] = 9
            return before, twice.LAST[0]
        """
        self.assertEqual(self.values(zygote, source), [(0, 9)] * 3)

    def test_a_mapping_past_the_end_of_its_file_is_no_obstacle(self):
        """FA-3"""
        zygote = self.preloading(
            cut="""
            import mmap, tempfile
            FILE = tempfile.TemporaryFile()
            FILE.truncate(8 * mmap.PAGESIZE)
            MAPPED = mmap.mmap(FILE.fileno(), 8 * mmap.PAGESIZE)
            MAPPED[0] = 3
            FILE.truncate(mmap.PAGESIZE)
            """
        )
        self.assertEqual(self.values(zygote, "import cut\ndef f(): return cut.MAPPED[0]", 1), [3])

    def test_memory_that_cannot_be_written_is_left_as_it_is(self):
        """FA-3"""
        zygote = self.preloading(
            reader="""
            import mmap
            with open(__file__, "rb") as file:
                TEXT = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            """
        )
        source = """
        import reader

        def f():
            maps = open("/proc/self/maps").read().splitlines()
            return reader.TEXT[:6], any("r--s" in line and "reader.py" in line for line in maps)
        """
        self.assertEqual(self.values(zygote, source, 1), [(b"import", True)])

    def test_a_preload_whose_memory_cannot_be_made_a_calls_own_is_refused_by_name(self):
        """FA-3"""
        zygote = self.preloading(
            innocent="import mmap\nSMALL = mmap.mmap(-1, 4096)",
            huge="import mmap\nHUGE = mmap.mmap(-1, (1 << 30) + 4096)",
        )
        self.assertIsNone(zygote.ready)
        message = zygote.error["message"]
        self.assertIn("cannot preload `huge`: calls would share the memory `/dev/zero (deleted)`", message)
        self.assertIn("(1048580 KiB)", message)
        self.assertEqual(zygote.error["verdict"], "setup_failed")

    # -- generators

    def test_generators_of_a_preload_draw_other_numbers_in_each_worker(self):
        """FA-4"""
        zygote = self.preloading(
            drawn="""
            import random
            MODULE = random.Random(5)
            HELD = {"in": [random.Random(5)]}
            class Named:
                inner = random.Random(5)
            def function(hidden=random.Random(5)):
                return hidden.random()
            """
        )
        source = """
        import drawn

        def f():
            return (
                drawn.MODULE.random(), drawn.HELD["in"][0].random(), drawn.Named.inner.random(), drawn.function(),
                drawn.MODULE.gauss(0, 1),
            )
        """
        drawn = self.values(zygote, source)
        self.assertEqual(len(set(sum(drawn, ()))), 15, drawn)
        seeded = self.values(zygote, source, env={"FAIRTRIAL_SEED": "-7"})
        self.assertEqual(len(set(seeded)), 1, seeded)
        self.assertEqual(len(set(seeded[0])), 5)
        other = self.values(zygote, source, 1, env={"FAIRTRIAL_SEED": "8"})
        self.assertFalse(set(other[0]) & set(seeded[0]))

    def test_a_generator_with_its_own_idea_of_a_seed_is_left_alone(self):
        """FA-4"""
        zygote = self.preloading(
            own="""
            import random
            class Fixed(random.Random):
                def seed(self, *args, **kwargs):
                    raise RuntimeError("I have none")
                def __init__(self):
                    pass
            FIXED, SYSTEM = Fixed(), random.SystemRandom()
            """
        )
        source = "import own\ndef f(): return 0 <= own.FIXED.random() < 1, 0 <= own.SYSTEM.random() < 1"
        self.assertEqual(self.values(zygote, source, 1, env={"FAIRTRIAL_SEED": "1"}), [(True, True)])


globals().update(on_every_interpreter(Preloads))
del Preloads  # it has no interpreter of its own


if __name__ == "__main__":
    unittest.main()
