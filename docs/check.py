"""Runs every `$ ` command of the ```console blocks in README.md and docs/*.md and compares what it prints.

    python3 docs/check.py BINARY            says what differs, exits 1 if anything does
    python3 docs/check.py BINARY --write    puts what was printed into the blocks, and writes docs/cli.md

Each file's commands run in one temporary directory that holds a copy of docs/examples, with the binary first in PATH.
Standard output and standard error are read together. Differences that REDACTIONS hide are no differences; a line
`...` in a block stands for any number of lines. docs/cli.md is the help of each command, checked the same way.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLI = ROOT / "docs" / "cli.md"
COMMANDS = ["", "exec", "batch", "plan", "run", "resume", "retry", "rescore", "status", "export", "verify", "bundle"]
COMMANDS += ["report", "design", "evaluate", "agent", "doctor"]
MARK = "--- the next command of the block ---"

# What differs from run to run and machine to machine, here and nowhere else.
REDACTIONS = [
    (r'("(?:wall|queue|user|system)_s": ?)[0-9.e-]+', r"\1N"),
    (r'("(?:peak_rss|base_rss)_bytes": ?)(?:\d+|null)', r"\1N"),
    (r'("(?:started|finished)_at_ns": ?)\d+', r"\1N"),
    (r'("worker_pid": ?)\d+', r"\1N"),
    (r'("worker_id": ?)"[0-9a-f]{12}"', r'\1"ID"'),
    # Better for a user than for root.
    (r'("environ_guard": \{\s*"state": )"[^"]*"(,\s*"via": )"[^"]*"', r'\1"STATE"\2"VIA"'),
    (r"environ_guard .*", "environ_guard STATE VIA"),
    # Said of a time-out where other work took the processors.
    (r", of which it was ready to run and had no processor for \d+\.\d+ m?s: the machine was busy; [^\n]*", ""),
    (r"\d+\.\d+ m?s\b", "N s"),
    (r"(?:Current thread|Thread) 0x[0-9a-f]+(?: \[[^\]]*\])?", "Thread ID"),
    (r"(File \"[^\"]*\", line )\d+( in )", r"\1N\2"),
    (r"-?\d+(?:\.\d+)? MiB", "N MiB"),
]


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    if len(arguments) != 1:
        sys.exit("usage: python3 docs/check.py BINARY [--write]")
    binary = Path(arguments[0]).resolve()
    if binary.name != "fairtrial" or not os.access(binary, os.X_OK):
        sys.exit("docs/check.py: `%s` is no `fairtrial` that can be run (build it first)" % arguments[0])
    write = "--write" in sys.argv
    pages = [ROOT / "README.md"] + sorted(path for path in (ROOT / "docs").glob("*.md") if path != CLI)
    faults = [fault for page in pages for fault in check_page(page, binary, write)]
    faults += check_help(binary, write)
    for fault in faults:
        print(fault)
    commands = sum(len(commands_of(block)) for page in pages for _, block in blocks_of(page.read_text()))
    print("docs: %d commands in %d files, %d differences" % (commands, len(pages), len(faults)))
    return 1 if faults and not write else 0


def check_page(page, binary, write):
    """Runs a file's blocks in order; yields a description of each difference."""
    text = page.read_text()
    with tempfile.TemporaryDirectory(prefix="fairtrial-docs-") as directory:
        work = os.path.join(directory, "work")
        shutil.copytree(str(ROOT / "docs" / "examples"), work)
        environment = {
            "PATH": "%s:%s" % (binary.parent, os.environ["PATH"]),
            "HOME": directory,
            "LANG": "C.UTF-8",
            "COLUMNS": "100",
            "FAIRTRIAL_NODE_ID": "node",
            "FAIRTRIAL_SPILL_DIR": os.path.join(directory, "spill"),
        }
        for line, block in blocks_of(text):
            said = commands_of(block)
            printed = run([command for command, _ in said], work, environment)
            for (command, expected), actual in zip(said, printed):
                if not matches(expected, actual):
                    yield "%s:%d: $ %s\n%s" % (page.relative_to(ROOT), line, command, difference(expected, actual))
            if write:
                new = "".join(
                    "$ %s\n%s" % (command, expected if is_kept(expected, actual) else actual)
                    for (command, expected), actual in zip(said, printed)
                )
                text = text.replace("```console\n%s```" % block, "```console\n%s```" % new, 1)
    if write:
        page.write_text(text)


def blocks_of(text):
    """(line number, body) of each block."""
    for found in re.finditer(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text.count("\n", 0, found.start()) + 1, found.group(1)


def commands_of(block):
    """[(command, what it prints)]; a command goes on in the next line after a backslash."""
    said, lines = [], block.splitlines(keepends=True)
    while lines:
        line = lines.pop(0)
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\\n"):
                command += lines.pop(0)
            said.append([command.rstrip("\n"), ""])
        elif said:
            said[-1][1] += line
        else:
            sys.exit("docs/check.py: a console block begins with %r instead of a command" % line)
    return [tuple(pair) for pair in said]


def run(commands, directory, environment):
    """What each command prints. All run in one shell, so that `echo $?` sees the one before."""
    script = "status=0\n"
    for command in commands:
        script += "printf '\\n%%s\\n' '%s'; (exit $status)\n%s\nstatus=$?\n" % (MARK, command)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    printed = done.stdout.decode("utf-8", "replace").split("\n%s\n" % MARK)[1:]
    printed += [""] * (len(commands) - len(printed))
    return [text + "\n" if text and not text.endswith("\n") else text for text in printed]


def redact(text):
    for pattern, replacement in REDACTIONS:
        text = re.sub(pattern, replacement, text)
    return text


def matches(expected, actual):
    pattern = "".join(
        r"(?:.*\n)*" if line == "...\n" else re.escape(line) for line in redact(expected).splitlines(keepends=True)
    )
    return re.fullmatch(pattern, redact(actual)) is not None


def is_kept(expected, actual):
    """What was shortened by hand is mended by hand."""
    return "...\n" in expected.splitlines(keepends=True) or matches(expected, actual)


def difference(expected, actual):
    return "".join(
        ["  expected  %s\n" % line for line in redact(expected).splitlines()]
        + ["  printed   %s\n" % line for line in redact(actual).splitlines()]
    )


def check_help(binary, write):
    text = "# The command line\n\nGenerated by `python3 docs/check.py BINARY --write`; CI checks that it is current.\n"
    for command in COMMANDS:
        words = ["fairtrial"] + command.split()
        done = subprocess.run(
            [str(binary)] + words[1:] + ["--help"],
            env={"COLUMNS": "100", "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        lines = "\n".join(line.rstrip() for line in done.stdout.decode().splitlines())
        text += "\n## `%s`\n\n```text\n%s\n```\n" % (" ".join(words), lines.rstrip())
    if CLI.exists() and CLI.read_text() == text:
        return []
    if write:
        CLI.write_text(text)
    return ["docs/cli.md is not the help that the binary prints (run `python3 docs/check.py BINARY --write`)"]


if __name__ == "__main__":
    sys.exit(main())
