"""The two sides of a comparison: a study run by DRE and by Fairtrial."""

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FIXTURES = ROOT / "crates" / "fairtrial-study" / "tests" / "fixtures"
BINARY = Path(os.environ.get("FAIRTRIAL_BIN") or ROOT / "target" / "debug" / "fairtrial").resolve()
LIMIT_S = 60


@dataclass
class Sides:
    """Runs either side in one folder. `words` are paths inside it, or options."""

    folder: Path
    python: str  # DRE's interpreter

    def fairtrial(self, *words, expect=0, env=None):
        return self._run([BINARY, *words], expect, env)

    def dre(self, study, out, *options, expect=0, env=None):
        """A study through a host program."""
        return self._run([self.python, HERE / "dre_host.py", study, out, *options], expect, env)

    def drexp(self, *words, expect=0):
        """DRE's own command."""
        return self._run([self.python, "-m", "design_research_experiments.cli", *words], expect, None)

    def script(self, text, *words, expect=0):
        """A script by DRE's interpreter."""
        return self._run([self.python, "-c", text, *words], expect, None)

    def compare(self, reference, new, *options):
        """What the fixtures' own comparison says: `equal`, or the differences."""
        compared = [self.python, FIXTURES / "compare_artifacts.py", reference, new, *options]
        return self._run(compared, None, None).stdout.strip()

    def write(self, name, text):
        (self.folder / name).write_text(text)

    @contextlib.contextmanager
    def start(self, *words, env=None):
        """Fairtrial in the background, killed at the end if it is still there."""
        argv = [str(word) for word in (BINARY, *words)]
        process = subprocess.Popen(argv, cwd=self.folder, env=_environment(env), stdout=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _run(self, argv, expect, env):
        argv = [str(word) for word in argv]
        pipes = {"capture_output": True, "text": True, "timeout": LIMIT_S}
        done = subprocess.run(argv, cwd=self.folder, env=_environment(env), **pipes)
        if expect is not None and done.returncode != expect:
            said = (done.stdout + done.stderr)[-4000:]
            raise AssertionError("exit code %d of %s\n%s" % (done.returncode, argv, said))
        return done


def _environment(more):
    """Without what would let one interpreter look into another's packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {"WAIT_AT": "", **kept, **(more or {})}  # passed by name to agents of ours: it has to be set


def wait_until(holds, what):
    end = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > end:
            raise AssertionError("not within %d s: %s" % (LIMIT_S, what))
        time.sleep(0.005)
