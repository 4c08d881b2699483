//! Where and by what a study was run, as DRE's manifest says it (SF-55). Reads files, and starts nothing.

use std::fs;

use crate::clock::now_text;
use crate::value::Value;

const PACKAGES: [&str; 4] = [
    "design-research-agents",
    "design-research-analysis",
    "design-research-experiments",
    "design-research-problems",
];

/// The machine and the interpreter that run a study.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The machine's name.
    pub host: String,
    /// Its system.
    pub platform: String,
    /// The version of the host program's interpreter, if there is one.
    pub python_version: Option<String>,
    /// The host program's versions of DRE's packages.
    pub packages: Vec<(String, String)>,
}

/// What is known without running a program of the user's.
#[must_use]
pub fn captured(site: &Site) -> Value {
    let packages = PACKAGES.map(|name| {
        let mut known = site.packages.iter();
        let version = known.find(|(known, _)| known == name);
        let version = version.map_or("not-installed", |(_, version)| version);
        (name, Value::text(version))
    });
    let python = site.python_version.clone();
    Value::map([
        ("captured_at", Value::Text(now_text())),
        ("extra", Value::Map(Vec::new())),
        ("git_sha", git_sha().map_or(Value::Null, Value::Text)),
        ("host", Value::text(&site.host)),
        ("package_versions", Value::map(packages)),
        ("platform", Value::text(&site.platform)),
        ("python_version", python.map_or(Value::Null, Value::Text)),
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
