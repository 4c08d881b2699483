//! Keys that people write who have not read the list: what they mean by them.

/// What is written, and the keys that may be meant, the likeliest first.
const GUESSES: &[(&[&str], &[&str])] = &[
    (
        &[
            "argv",
            "cmd",
            "cmdline",
            "commandline",
            "commands",
            "exec",
            "program",
            "run",
            "script",
            "shell",
        ],
        &["command"],
    ),
    (
        &[
            "test_cmd",
            "test_command",
            "test_commands",
            "testing",
            "test_suite",
            "pytest",
            "check",
            "checks",
        ],
        &["tests"],
    ),
    (
        &[
            "bench_cmd",
            "bench_command",
            "benches",
            "benchmark",
            "benchmark_command",
            "benchmarking",
            "benchmarks",
            "perf",
        ],
        &["bench"],
    ),
    (
        &["build_cmd", "build_command", "compile", "setup"],
        &["build"],
    ),
    (
        &[
            "deadline",
            "max_time",
            "time",
            "time_limit",
            "timelimit",
            "timeouts",
        ],
        &["timeout"],
    ),
    (
        &[
            "dir",
            "directory",
            "workdir",
            "working_dir",
            "working_directory",
        ],
        &["cwd", "path"],
    ),
    (&["environ", "environment", "vars"], &["env"]),
    (&["dependencies", "deps", "share", "venv"], &["shared"]),
    (&["repository", "root", "source", "src"], &["repo"]),
    (&["branch", "commit", "ref", "rev", "revision"], &["base"]),
    (
        &[
            "jobs",
            "parallelism",
            "processes",
            "slots",
            "threads",
            "workers",
        ],
        &["parallel"],
    ),
    (
        &[
            "out",
            "out_dir",
            "outdir",
            "output_dir",
            "output_directory",
            "results_dir",
        ],
        &["output"],
    ),
    (
        &["diffs", "patch", "rivals", "variants"],
        &["candidates", "patches"],
    ),
    (&["ignore"], &["exclude"]),
    (&["id", "label", "title"], &["name"]),
    (
        &["junit", "junit_file", "junit_xml", "xml"],
        &["junit_path"],
    ),
    (&["format", "report", "reporter"], &["results"]),
    (
        &["count", "iterations", "n", "number", "repetitions", "times"],
        &["loops", "runs", "repeats"],
    ),
    (&["blocks", "max_runs"], &["max_blocks"]),
    (&["effect", "min_speedup", "threshold"], &["min_effect"]),
    (&["mem", "memory_limit", "ram"], &["memory"]),
];

/// The keys that may be meant, whether or not they are known where this one was written.
pub(super) fn guesses(written: &str) -> &'static [&'static str] {
    let written = written.to_ascii_lowercase().replace(['-', ' '], "_");
    let found = GUESSES
        .iter()
        .find(|(guesses, _)| guesses.contains(&written.as_str()));
    found.map_or(&[], |(_, keys)| keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-6: a guess means one thing, and it is no key that is known by itself.
    #[test]
    fn each_guess_is_there_once() {
        let mut all: Vec<&str> = GUESSES
            .iter()
            .flat_map(|(words, _)| *words)
            .copied()
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(guesses("Time-Limit"), ["timeout"]);
        assert!(guesses("zzz").is_empty());
    }
}
