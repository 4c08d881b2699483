# Error records: what a failed call says about itself. Runs in the worker, after the candidate's code, so it imports
# nothing (the `traceback` module costs 10 ms to load and trusts `__str__`) and survives whatever an exception does.
import os as _os

UNPRINTABLE = "<unprintable>"
MOST_NAME = 500  # characters of a type's name, which is the candidate's to choose
CONTEXT_LINES = 3
_REPEATS = 3  # of one frame, before they are counted instead of shown
_MAX_SOURCE_BYTES = 4 << 20
_MAX_CHAIN = 100

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"

# Text of sources that are in no file, by name.
sources = {}
# Lines of the files that the report in hand has read.
_lines = {}


def error_record(error, verdict, capture, home=None):
    """The record of an exception. `home` is the candidate's file: its last frame is the one shown in context."""
    record = {
        "verdict": verdict,
        "type": type_name(type(error)),
        "message": bounded(_text_of(error), capture),
        "traceback": bounded(_guarded(_format_chain, error, home), capture),
    }
    _lines.clear()
    return record


def summary(error):
    """`KeyError: 'x'`"""
    text = _text_of(error)
    return "%s: %s" % (type_name(type(error)), text) if text else type_name(type(error))


def forget_locals(error):
    """Drops what the frames of a failed call still hold."""
    entry = error.__traceback__
    while entry is not None:
        try:
            entry.tb_frame.clear()
        except RuntimeError:
            pass  # still running: one of ours
        entry = entry.tb_next


def type_name(cls):
    """`KeyError`, `module.Class`; for a class of the candidate's source the bare name."""
    try:
        name, module = cls.__qualname__, cls.__module__
    except BaseException:
        return UNPRINTABLE
    if not isinstance(name, str):
        return UNPRINTABLE
    if not isinstance(module, str) or module in ("builtins", "__candidate__", "__main__", "<fairtrial>"):
        return "".join((name,))[:MOST_NAME]  # joined: a name may be of a class with an indexing of its own
    return "".join((module, ".", name))[:MOST_NAME]


def bounded(text, capture):
    """`text` in at most about `capture` bytes: head, the number of bytes dropped, tail."""
    size = len(text) if text.isascii() else _utf8_size(text)
    if size <= capture:
        return text
    half = capture // 2
    head = _utf8(text[:half])[:half].decode("utf-8", "ignore")
    tail = _utf8(text[-half:])[-half:].decode("utf-8", "ignore") if half else ""
    dropped = size - _utf8_size(head) - _utf8_size(tail)
    return "%s\n[... %d bytes dropped ...]\n%s" % (head, dropped, tail)


def _utf8(text):
    return text.encode("utf-8", "surrogatepass")


def _utf8_size(text):
    step = 1 << 20  # by pieces: a huge message is not copied whole
    return sum(len(_utf8(text[at : at + step])) for at in range(0, len(text), step))


def _guarded(function, *args):
    try:
        text = function(*args)
        return text if type(text) is str else UNPRINTABLE
    except BaseException:  # a `__str__` that raises or exits harms only its own report
        return UNPRINTABLE


def _text_of(error):
    return _guarded(lambda: str.__str__(str(error)))


def _format_chain(error, home):
    links = []
    seen = set()
    link = None
    while error is not None and len(links) < _MAX_CHAIN and id(error) not in seen:
        seen.add(id(error))
        links.append((error, link))
        if error.__cause__ is not None:
            error, link = error.__cause__, _CAUSE
        elif error.__context__ is not None and not error.__suppress_context__:
            error, link = error.__context__, _CONTEXT
        else:
            break
    # A link's text stands between an exception and the one that followed it.
    parts = []
    for error, link in reversed(links):
        parts.append(_format_one(error, 0))
        if link:
            parts.append(link)
    parts.append(_format_context(links[0][0], home))
    return "".join(parts)


def _format_one(error, depth):
    parts = []
    frames = user_frames(error)
    if frames:
        parts.append("Traceback (most recent call last):\n")
        previous, count = None, 0
        for frame in frames:
            count = count + 1 if frame == previous else 1
            if count <= _REPEATS:
                parts.append(_format_frame(*frame))
            elif parts[-1].startswith("  [Previous"):
                parts[-1] = _format_repeats(count)
            else:
                parts.append(_format_repeats(count))
            previous = frame
    if isinstance(error, SyntaxError):
        parts.append(_guarded(_format_syntax, error))
    if isinstance(error, SyntaxError):
        parts.append("%s: %s\n" % (type_name(type(error)), _guarded(lambda: str(error.msg))))
    else:
        parts.append(summary(error) + "\n")
    for note in _notes(error):
        parts.append(note + "\n")
    members = getattr(error, "exceptions", None)
    if isinstance(members, tuple) and depth < 5:
        for number, member in enumerate(members, 1):
            if isinstance(member, BaseException):
                parts.append("  ---- %d of %d ----\n" % (number, len(members)))
                text = _guarded(_format_one, member, depth + 1)
                parts.extend("  " + line + "\n" for line in text.splitlines())
    return "".join(parts)


def _notes(error):
    notes = getattr(error, "__notes__", None)
    return [note for note in notes if type(note) is str] if isinstance(notes, list) else []


def user_frames(error):
    """(file, line, function) from the outermost; neither the shim's own frames nor what leads from it to the user."""
    frames = []
    entry = error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        file = code.co_filename
        if file != "<fairtrial>" and not file.startswith("<frozen importlib"):
            if frames or "/asyncio/" not in file:
                frames.append((file, entry.tb_lineno, code.co_name))
        entry = entry.tb_next
    return frames


def _format_frame(file, line, name):
    text = _source_line(file, line)
    shown = "    %s\n" % text.strip() if text and text.strip() else ""
    return '  File "%s", line %s, in %s\n%s' % (file, line, name, shown)


def _format_repeats(count):
    extra = count - _REPEATS
    return "  [Previous line repeated %d more time%s]\n" % (extra, "s" if extra > 1 else "")


def _format_syntax(error):
    if error.lineno is None:
        return ""  # such as a NUL character: CPython does not say where
    parts = ['  File "%s", line %s\n' % (error.filename, error.lineno)]
    text = error.text if isinstance(error.text, str) else _source_line(error.filename, error.lineno)
    if text:
        line = text.rstrip()
        shown = line.lstrip()
        parts.append("    %s\n" % shown)
        if isinstance(error.offset, int) and error.offset > 0:
            start = min(error.offset, len(line) + 1) - 1
            end = getattr(error, "end_offset", None)
            same_line = getattr(error, "end_lineno", None) == error.lineno
            width = end - error.offset if same_line and isinstance(end, int) else 1
            width = max(1, min(width, len(line) - start))
            before = "".join(c if c == "\t" else " " for c in line[len(line) - len(shown) : start])
            parts.append("    %s%s\n" % (before, "^" * width))
    return "".join(parts)


def _format_context(error, home):
    """Three lines either side of the failing one, which is marked `>>`."""
    if isinstance(error, SyntaxError) and isinstance(error.lineno, int) and isinstance(error.filename, str):
        file, failing = error.filename, error.lineno
    else:
        frames = user_frames(error)
        if not frames:
            return ""
        at_home = [frame for frame in frames if frame[0] == home]
        file, failing, _ = (at_home or frames)[-1]
    lines = _source_lines(file)
    if not failing or not 1 <= failing <= len(lines):
        return ""
    first, last = max(1, failing - CONTEXT_LINES), min(len(lines), failing + CONTEXT_LINES)
    width = len(str(last))
    parts = ["\n%s:%d\n" % (file, failing)]
    for number in range(first, last + 1):
        mark = ">>" if number == failing else "  "
        parts.append(("%s %*d | %s" % (mark, width, number, lines[number - 1])).rstrip() + "\n")
    return "".join(parts)


def _source_line(file, line):
    lines = _source_lines(file)
    return lines[line - 1] if isinstance(line, int) and 1 <= line <= len(lines) else ""


def _source_lines(file):
    lines = _lines.get(file)
    if lines is None:
        # The compiler's idea of a line: `splitlines` would also break at form feeds and Unicode separators.
        text = _source_text(file).replace("\r\n", "\n").replace("\r", "\n")
        lines = _lines[file] = text.split("\n")
    return lines


def _source_text(file, _open=_os.open, _read=_os.read, _close=_os.close, _flags=_os.O_RDONLY | _os.O_NONBLOCK):
    text = sources.get(file)
    if text is not None:
        return text
    if not isinstance(file, str) or file.startswith("<"):
        return ""
    try:
        descriptor = _open(file, _flags)  # O_NONBLOCK: a FIFO of that name must not hang the report
    except (OSError, ValueError):
        return ""
    try:
        return _read(descriptor, _MAX_SOURCE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        _close(descriptor)


def near(name, names):
    """The name that is most like `name`, or None when none is close."""
    best, limit = None, (len(name) + 1) // 3 + 1
    for other in names:
        if abs(len(other) - len(name)) < limit:
            distance = _distance(name.lower(), other.lower())
            if distance < limit:
                best, limit = other, distance
    return best


def _distance(a, b):
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]
