"""In the interpreters that a foreign test starts: what its suite imports first."""

import importlib
import os

if os.environ.get("FOREIGN_ADAPTER"):
    importlib.import_module(os.environ["FOREIGN_ADAPTER"])
