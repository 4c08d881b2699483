//! A test in a process of its own: what counts threads, descriptors or memory cannot share one with other tests.

use std::process::Command;

const ALONE: &str = "FAIRTRIAL_TEST_ALONE";

/// Whether this process runs the one test `name` (as libtest prints it). If not, runs it so and fails as it does.
///
/// ```no_run
/// # use fairtrial_tests::is_alone;
/// if !is_alone("lifecycle::nothing_is_left") {
///     return;
/// }
/// ```
#[must_use]
pub fn is_alone(name: &str) -> bool {
    is_alone_with(name, |_| {})
}

/// As [`is_alone`], in a process changed as `change` says.
pub fn is_alone_with(name: &str, change: impl FnOnce(&mut Command)) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the test binary runs itself, no candidate"
    )]
    let mut command = Command::new(std::env::current_exe().expect("this process has a program"));
    command
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(ALONE, "1");
    change(&mut command);
    let output = command.output().expect("the test binary can be run again");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "alone in its process it fails:\n{text}"
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
