//! The user's own tree, looked at before an evaluation and after it (CA-30). Nothing here changes it.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

use fairtrial_exec::{Level, TreeWatch};

use super::evaluator::Evaluator;
use super::prepare::Places;
use super::repository::Listing;

/// A tree as it was.
pub(super) struct Watch {
    tree: TreeWatch,
    scope: Scope,
}

/// Which part of it.
struct Scope {
    left_out: Vec<Vec<u8>>,
    /// None stands for all.
    listed: Option<HashSet<Vec<u8>>>,
}

impl Scope {
    fn leaves_out(&self, path: &[u8]) -> bool {
        let is_below = |place: &Vec<u8>| {
            let rest = path.strip_prefix(&place[..]);
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        let is_listed = |listed: &HashSet<Vec<u8>>| listed.contains(path);
        self.left_out.iter().any(is_below) || !self.listed.as_ref().is_none_or(is_listed)
    }
}

/// Files, and the directories that lead to them.
fn with_directories(files: &[Vec<u8>]) -> HashSet<Vec<u8>> {
    let mut all = HashSet::new();
    for file in files {
        let slashes = file.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        all.extend(slashes.map(|(at, _)| file[..at].to_vec()));
        all.insert(file.clone());
    }
    all
}

impl Watch {
    /// What to warn of: paths that were changed since, if any were.
    pub(super) fn warning(&self) -> Option<String> {
        let changed = self.tree.changes(|path| self.scope.leaves_out(path));
        // A tree that cannot be looked at any more is no reason to fail what was found out.
        let changed = changed.unwrap_or_default();
        let (first, count) = (changed.first()?, changed.len());
        Some(format!(
            "user_tree_changed: {count} paths of the repository were changed meanwhile, `{first}` first"
        ))
    }
}

impl Evaluator {
    /// What of the user's tree is to stay as it is while candidates run: all of it where one could change something there
    /// (without mounts, modes and times at the least), else the files that were taken, whoever changes them.
    pub(super) fn watch(&self, places: &Places, listing: &Listing, mounted: bool) -> Option<Watch> {
        let own = [&places.output, &places.root.join(".git/worktrees")];
        let inside = own
            .into_iter()
            .filter_map(|path| path.strip_prefix(&places.root).ok());
        let left_out = inside
            .map(|path| path.as_os_str().as_bytes().to_vec())
            .collect();
        let is_covered = self.spec.sandbox.level != Level::None && mounted;
        let listed = is_covered.then(|| with_directories(&listing.files));
        let scope = Scope { left_out, listed };
        let tree = TreeWatch::start(&places.root, |path| scope.leaves_out(path)).ok()?; // what cannot be read is not watched
        Some(Watch { tree, scope })
    }
}
