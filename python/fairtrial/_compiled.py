"""The shim as code of this interpreter, from the cache that Python keeps of any module: zygotes need not compile it."""

from __future__ import annotations

import _imp
import marshal
from functools import lru_cache
from importlib.util import find_spec

# In the order in which `zygote.rs` joins their texts.
PARTS = "codec report restore frames fork pickles imports preloads spawning worker serve".split()


@lru_cache
def shim_code() -> bytes:
    """A marshalled list of the parts' code objects."""
    parts = []
    for part in PARTS:
        name = f"{__package__}._shim.{part}"
        spec = find_spec(name)
        assert spec is not None and spec.loader is not None, "it is in this package"
        code = spec.loader.get_code(name)  # type: ignore[attr-defined]
        _imp._fix_co_filename(code, "<fairtrial>")  # type: ignore[attr-defined]  # known by it in tracebacks
        parts.append(code)
    return marshal.dumps(parts)
