//! A test in a process of its own: what it measures of itself is then not another test's doing.

use std::process::Command;

const MARK: &str = "FAIRTRIAL_TEST_ALONE";

/// Whether this process was started for the test of this name (`results::name`). If not, starts one, waits for it and
/// fails if it fails; the caller then has nothing left to do.
#[must_use]
pub fn alone(test: &str) -> bool {
    if std::env::var(MARK).is_ok_and(|name| name == test) {
        return true;
    }
    let program = std::env::current_exe().expect("this process has a program");
    #[expect(
        clippy::disallowed_methods,
        reason = "the test binary runs itself, for a clean process"
    )]
    let output = Command::new(program)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, test)
        .output()
        .expect("the test binary starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} in a process of its own: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// Anonymous resident memory of this process: what it allocated, files and mappings of them apart.
#[must_use]
pub fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("a kernel of 4.5 or later") << 10
}

/// Whether the long forms of tests were asked for.
#[must_use]
pub fn stress() -> bool {
    std::env::var_os("FAIRTRIAL_STRESS").is_some_and(|value| value == "1")
}
