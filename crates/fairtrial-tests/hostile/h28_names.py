# Leaves names with a newline, of no encoding, as long as may be; and trees that nobody may enter.
def attack(places, what):
    for name in (b"new\nline", b"\xff\xfe\x80", b"x" * 255, b"-rf", b" ", b"\x1b[2J", "ü".encode() * 100):
        os.mkdir(name)
        os.close(os.open(name + b"/" + name, os.O_CREAT | os.O_WRONLY, 0o600))
    os.makedirs("closed/inner/innermost")
    open("closed/inner/file", "w").close()
    for path in ("closed/inner/file", "closed/inner/innermost", "closed/inner", "closed"):
        os.chmod(path, 0)
    os.chmod(os.environ["TMPDIR"], 0)
    return "left"
