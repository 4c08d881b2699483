# What `python -c` runs: reads the shim from descriptor 3 and starts it. Old interpreters must be able to parse it.
def start():
    import os
    import sys

    del globals()["start"]  # a candidate finds a clean `__main__`
    if sys.version_info < (3, 8):
        sys.stderr.write("Python %d.%d.%d is too old: fairtrial needs 3.8 or later\n" % tuple(sys.version_info[:3]))
        sys.exit(1)
    if sys.path and sys.path[0] == "":
        del sys.path[0]  # put there by `-c`: the cwd is nobody's library

    def read(size):
        chunks = []
        while size:
            chunk = os.read(3, min(size, 1 << 20))
            if not chunk:
                sys.exit(1)
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    header = read(16)
    if header[:4] not in (b"FT\x01\x01", b"FT\x01\x07"):
        sys.stderr.write("fairtrial: expected the shim, got %r\n" % header)
        sys.exit(1)
    parts = read(int.from_bytes(header[8:], "little"))
    # A copy of the builtins: what a candidate does to `builtins.len` is its own affair.
    # STARTUP: modules that the interpreter itself loaded; as for any program, no `python_path` shadows those.
    builtins = dict(vars(sys.modules["builtins"]))
    shim = {"__name__": "<fairtrial>", "__builtins__": builtins, "STARTUP": frozenset(sys.modules)}
    if header[3:4] == b"\x07":  # compiled by a host of the same interpreter
        import marshal

        parts = marshal.loads(parts)
    else:
        parts = [compile(parts, "<fairtrial>", "exec")]
    for part in parts:
        exec(part, shim)
    shim["serve"](3, 4)


start()
