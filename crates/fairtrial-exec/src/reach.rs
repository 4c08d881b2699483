//! Files of the user's that a call cannot use because it runs as a user of its own: at `strict`, of a root engine.

use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::call::{Call, Work};
use crate::sandbox::{InForce, Level, State};

/// Permissions that everybody has.
const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const EXECUTE: u32 = 0o1;

/// A hint for a command that failed: the first of its files that its own user cannot use, and a remedy.
#[must_use]
pub fn out_of_reach(call: &Call, in_force: &InForce) -> Option<String> {
    let Work::Command(work) = &call.work else {
        return None;
    };
    let own_user =
        |one: &&crate::sandbox::Mechanism| one.name == "slot_uid" && one.state == State::Enforced;
    in_force.mechanisms.iter().find(own_user)?;
    let cwd = call.cwd.as_deref();
    let mut words = work.argv.iter().enumerate().filter_map(|(index, word)| {
        let path = Path::new(word);
        let named = path.is_absolute() || index > 0 || path.components().count() > 1;
        let path = match cwd {
            _ if path.is_absolute() => path.to_owned(),
            Some(cwd) if named => cwd.join(path).components().collect(), // without `.`
            _ => return None, // in the scratch directory, which is the call's own
        };
        let facts = path.metadata().ok()?;
        let (act, needed, change) = match (index, facts.is_dir()) {
            (0, false) => ("execute", EXECUTE, "o+rx"),
            (_, true) => ("enter", EXECUTE, "o+rx"),
            _ => ("read", READ, "o+r"),
        };
        let remedy = format!("`chmod {change} {}`", path.display());
        (!everybody_may(&facts, needed)).then(|| told(&path, &facts, act, &remedy))
    });
    let directory = || {
        let cwd: PathBuf = cwd?.components().collect();
        let facts = cwd.metadata().ok()?;
        if !everybody_may(&facts, READ | EXECUTE) {
            let remedy = format!("`chmod o+rx {}`", cwd.display());
            return Some(told(&cwd, &facts, "enter", &remedy));
        }
        let remedy =
            "give it a directory that everybody may write to, as made by `mkdir -m 1777 DIR`";
        (!everybody_may(&facts, WRITE)).then(|| told(&cwd, &facts, "write to", remedy))
    };
    words.next().or_else(directory)
}

fn everybody_may(facts: &Metadata, needed: u32) -> bool {
    facts.permissions().mode() & needed == needed
}

fn told(path: &Path, facts: &Metadata, act: &str, remedy: &str) -> String {
    let (path, mode) = (path.display(), facts.mode() & 0o7777);
    let (strict, limits) = (Level::Strict, Level::Limits);
    format!(
        "at `{strict}` a call of root's runs as a user of its own, which cannot {act} `{path}` (mode {mode:04o}): \
         {remedy}, or use `{limits}`"
    )
}
