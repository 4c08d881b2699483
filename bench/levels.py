"""What isolation costs and holds (SB-75 to SB-79): fresh calls at each level in turns, trees that are killed, memory
bombs beside other calls, and the launcher's memory.
"""

from contender import interval, time, times

LEVELS = ["none", "limits", "strict"]
PROCESSES = 1000
CROWD = 64


def measure(engine, options):
    """{"fresh": {level: [seconds]}, "tree": {level: [seconds]}, "quiet": [...], "bombed": [...], ...}"""
    found = {"fresh": {level: [] for level in LEVELS}, "tree": {level: [] for level in LEVELS}}
    found.update(quiet=[], bombed=[], stopped=0)
    calls = 5 if options.quick else 40
    for number in range(options.rounds):
        turns = LEVELS[number % 3 :] + LEVELS[: number % 3]
        for level in turns:
            found["fresh"][level] += engine.ask("level %s %d" % (level, calls))
        if number % 5 == 0:
            for level in turns:
                found["tree"][level] += engine.ask("tree %s %d" % (level, PROCESSES))
        found["quiet"] += engine.ask("beside nothing %d" % calls)["seconds"]
        bombed = engine.ask("beside bombs %d" % calls)
        found["bombed"] += bombed["seconds"]
        found["stopped"] += bombed["stopped"]
    found["crowd_kib"] = engine.ask("crowd %d" % CROWD)
    return found


def report(found):
    """Lines of Markdown."""
    fresh, tree = found["fresh"], found["tree"]
    base = interval(fresh["none"])[0]
    lines = [
        "",
        "## Isolation",
        "",
        "| id | fresh no-op call | median | more than `none` | target |",
        "|---|---|---|---|---|",
    ]
    targets = {"none": ("", ""), "limits": ("SB-75", "0.5 ms"), "strict": ("SB-76", "3 ms")}
    for level in LEVELS:
        more = interval(fresh[level])[0] - base
        identity, target = targets[level]
        lines.append(
            "| %s | `%s` | %s | %s | %s |"
            % (identity, level, times(interval(fresh[level])), time(more) if target else "", target)
        )
    lines += [
        "",
        "| id | tree of %s processes in as many sessions, killed | median | largest | target |"
        % format(PROCESSES, ","),
        "|---|---|---|---|---|",
    ]
    ways = {"none": "found one by one", "limits": "by its control group", "strict": "with its namespace's init"}
    for level in LEVELS:
        median, largest = interval(tree[level])[0], max(tree[level])
        row = (level, ways[level], time(median), time(largest))
        lines.append("| SB-78 | `%s`: %s | %s | %s | 100 ms |" % row)
    quiet, bombed = p95(found["quiet"]), p95(found["bombed"])
    lines += [
        "",
        "SB-77: %d memory bombs were stopped while %d calls ran beside them, none of which failed; the 95th percentile"
        % (found["stopped"], len(found["bombed"])),
        "of their run time was %s, without bombs %s: %.2f times (target 1.2)."
        % (time(bombed), time(quiet), bombed / quiet),
        "SB-79: the launcher's resident memory with %d calls under way: %.1f MB (target 3 MB)."
        % (CROWD, found["crowd_kib"] * 1024 / 1e6),
    ]
    return lines


def p95(samples):
    return sorted(samples)[int(0.95 * len(samples))]
