//! Where and by what a study was run, as DRE's manifest says it (SF-55).

use std::fs;

use fairtrial_study::{Value, now_text};

const PACKAGES: [&str; 4] = [
    "design-research-agents",
    "design-research-analysis",
    "design-research-experiments",
    "design-research-problems",
];

/// What is known without running a program of the user's.
pub(crate) fn captured() -> Value {
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let packages = PACKAGES.map(|name| (name, Value::text("not-installed")));
    let platform = format!("{}-{}", text(uname.sysname()), text(uname.machine()));
    Value::map([
        ("captured_at", Value::Text(now_text())),
        ("extra", Value::Map(Vec::new())),
        ("git_sha", git_sha().map_or(Value::Null, Value::Text)),
        ("host", Value::Text(text(uname.nodename()))),
        ("package_versions", Value::map(packages)),
        ("platform", Value::Text(platform)),
        ("python_version", Value::Null),
    ])
}

/// The commit of the current directory, read from its repository's own files: nothing is started.
fn git_sha() -> Option<String> {
    let here = std::env::current_dir().ok()?;
    let repository = here
        .ancestors()
        .map(|directory| directory.join(".git"))
        .find(|git| git.is_dir())?;
    let head = fs::read_to_string(repository.join("HEAD")).ok()?;
    let Some(reference) = head.trim().strip_prefix("ref: ") else {
        return Some(head.trim().to_owned());
    };
    if let Ok(commit) = fs::read_to_string(repository.join(reference)) {
        return Some(commit.trim().to_owned());
    }
    let packed = fs::read_to_string(repository.join("packed-refs")).ok()?;
    let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
    lines
        .find(|(_, name)| *name == reference)
        .map(|(commit, _)| commit.to_owned())
}
