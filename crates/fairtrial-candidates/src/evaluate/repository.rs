//! Which files the base has: those of a work tree as it stands, of a commit, or of a plain directory (CA-20, CA-21, CA-23).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fairtrial_exec::Backend;

use super::error::EvaluateError;
use super::git::{Git, WorkTree, below};
use crate::spec;
use crate::stage::{Protect, TreePath};

/// What decides which files the base has.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// The repository.
    pub(crate) root: &'a Path,
    /// A commit, or none for the tree as it stands.
    pub(crate) commit: Option<&'a str>,
    /// Ignored files that are taken all the same.
    pub(crate) include: &'a Protect,
    /// What is left out.
    pub(crate) exclude: &'a Protect,
    /// Whether submodules are taken.
    pub(crate) submodules: bool,
    /// Directories and files that are never taken: output, candidates, the evaluation file, judges' files, shared ones.
    pub(crate) never: &'a [PathBuf],
    /// An empty directory of ours, for a commit's files.
    pub(crate) room: &'a Path,
    /// Where the file says so.
    pub(crate) places: &'a spec::Places,
}

/// The files of a base, not yet copied.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Where they are.
    pub(crate) root: PathBuf,
    /// Their paths below it, each once.
    pub(crate) files: Vec<Vec<u8>>,
    /// The commit they are of, or were changed from.
    pub(crate) commit: Option<String>,
    /// Whether they differ from it.
    pub(crate) dirty: bool,
    /// What people should be told.
    pub(crate) warnings: Vec<String>,
    /// Where git keeps the history, if that is outside the repository's directory: nobody is to see it (CA-31).
    pub(crate) history: Option<PathBuf>,
}

/// Lists the base.
pub(crate) async fn list<B: Backend>(
    git: &Git<'_, B>,
    wanted: &Wanted<'_>,
) -> Result<Listing, EvaluateError> {
    let tree = git.work_tree(wanted.root).await?;
    let history = match &tree {
        Some(tree) => Some(git.common_dir(tree).await?),
        None => None,
    };
    let mut listing = match (tree, wanted.commit) {
        (Some(tree), Some(name)) => of_commit(git, wanted, &tree, name).await?,
        (Some(tree), None) => as_it_stands(git, wanted, &tree).await?,
        (None, Some(name)) => {
            let root = wanted.root.display();
            let problem =
                format!("`base: {name}`: `{root}` is not a git work tree (use `working-tree`)");
            return Err(wanted.places.fault("base", problem).into());
        }
        (None, None) => plain(wanted)?,
    };
    let never: Vec<&[u8]> = wanted
        .never
        .iter()
        .filter_map(|path| place_below(wanted.root, path))
        .collect();
    listing
        .files
        .retain(|path| is_wanted(path, &never, wanted.exclude));
    listing.files.sort_unstable();
    listing.files.dedup();
    listing.history = history.filter(|place| !place.starts_with(wanted.root));
    Ok(listing)
}

/// Caches of bytecode belong to another candidate's source (CA-34), a `.git` to another history (CA-31).
fn is_wanted(path: &[u8], never: &[&[u8]], exclude: &Protect) -> bool {
    let is_below = |place: &&[u8]| {
        path.strip_prefix(*place)
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
    };
    let is_cache = path.ends_with(b".pyc")
        || path
            .split(|byte| *byte == b'/')
            .any(|name| name == b"__pycache__");
    let Ok(tree_path) = TreePath::new(path) else {
        return false;
    };
    !is_cache && !never.iter().any(is_below) && exclude.covering(&tree_path).is_none()
}

/// Where a path is below the root; none if it is not.
fn place_below<'p>(root: &Path, path: &'p Path) -> Option<&'p [u8]> {
    let place = path.strip_prefix(root).ok()?.as_os_str().as_bytes();
    (!place.is_empty()).then_some(place)
}

async fn as_it_stands<B: Backend>(
    git: &Git<'_, B>,
    wanted: &Wanted<'_>,
    tree: &WorkTree,
) -> Result<Listing, EvaluateError> {
    let mut listing = Listing {
        root: wanted.root.to_owned(),
        files: Vec::new(),
        commit: git.commit(tree, "HEAD").await?,
        dirty: git.is_dirty(tree).await?,
        warnings: Vec::new(),
        history: None,
    };
    let mut repositories = vec![Vec::new()];
    while let Some(prefix) = repositories.pop() {
        let directory = below(wanted.root, &prefix);
        for tracked in git.tracked(&directory).await? {
            let path = joined(&prefix, &tracked.path);
            match tracked.submodule {
                None => listing.files.push(path),
                Some(_) if !wanted.submodules => {}
                Some(_) => {
                    check_initialised(wanted, &path)?;
                    repositories.push([&path[..], b"/"].concat());
                }
            }
        }
        for path in git.untracked(&directory).await? {
            let path = joined(&prefix, &path);
            match path.last() {
                Some(b'/') => listing.warnings.push(format!(
                    "`{}` is a repository of its own, and no submodule: its files are not taken",
                    String::from_utf8_lossy(&path)
                )),
                _ => listing.files.push(path),
            }
        }
        let covered = |path: &Vec<u8>| {
            TreePath::new(path).is_ok_and(|path| wanted.include.covering(&path).is_some())
        };
        if !wanted.include.is_empty() {
            let ignored = git.ignored(&directory).await?;
            let ignored = ignored.iter().map(|path| joined(&prefix, path));
            listing.files.extend(ignored.filter(covered));
        }
    }
    // Deleted in the tree, but not yet in the index.
    listing
        .files
        .retain(|path| below(wanted.root, path).symlink_metadata().is_ok());
    Ok(listing)
}

fn check_initialised(wanted: &Wanted<'_>, path: &[u8]) -> Result<(), EvaluateError> {
    if below(wanted.root, path).join(".git").exists() {
        return Ok(());
    }
    let problem = format!(
        "submodule `{}` is not initialised (run `git submodule update --init`, or set `submodules: false`)",
        String::from_utf8_lossy(path)
    );
    Err(wanted.places.fault("repo", problem).into())
}

async fn of_commit<B: Backend>(
    git: &Git<'_, B>,
    wanted: &Wanted<'_>,
    tree: &WorkTree,
    name: &str,
) -> Result<Listing, EvaluateError> {
    let Some(commit) = git.commit(tree, name).await? else {
        let problem = format!(
            "`base: {name}`: no such commit in `{}` (use a branch, a tag, a commit or `working-tree`)",
            wanted.root.display()
        );
        return Err(wanted.places.fault("base", problem).into());
    };
    let files = wanted.room.join("files");
    let mut listing = Listing {
        root: files.clone(),
        files: Vec::new(),
        commit: Some(commit.clone()),
        dirty: false,
        warnings: Vec::new(),
        history: None,
    };
    let mut repositories = vec![(Vec::new(), tree.clone(), commit)];
    let mut number = 0;
    while let Some((prefix, tree, commit)) = repositories.pop() {
        number += 1;
        let index = wanted.room.join(format!("index-{number}"));
        let into = below(&files, &prefix);
        fs::create_dir_all(&into).map_err(EvaluateError::attempting("making room for the base"))?;
        for tracked in git.check_out(&tree, &commit, &index, &into).await? {
            let path = joined(&prefix, &tracked.path);
            let Some(commit) = tracked.submodule else {
                listing.files.push(path);
                continue;
            };
            if wanted.submodules {
                check_initialised(wanted, &path)?;
                let directory = below(wanted.root, &path);
                let tree = git.work_tree(&directory).await?;
                let tree = tree.ok_or_else(|| not_a_tree(&directory))?;
                repositories.push(([&path[..], b"/"].concat(), tree, commit));
            }
        }
    }
    Ok(listing)
}

fn not_a_tree(directory: &Path) -> EvaluateError {
    EvaluateError::Invalid(format!("`{}` is not a git work tree", directory.display()))
}

/// All there is below a directory that git knows nothing of.
fn plain(wanted: &Wanted<'_>) -> Result<Listing, EvaluateError> {
    let mut files = Vec::new();
    let never: BTreeSet<&Path> = wanted.never.iter().map(PathBuf::as_path).collect();
    let mut directories = vec![wanted.root.to_owned()];
    while let Some(directory) = directories.pop() {
        let attempt = || EvaluateError::attempting(format!("reading `{}`", directory.display()));
        for entry in fs::read_dir(&directory).map_err(attempt())? {
            let entry = entry.map_err(attempt())?;
            let path = entry.path();
            let kind = entry.file_type().map_err(attempt())?;
            if never.contains(path.as_path()) || entry.file_name() == ".git" {
                continue;
            }
            match kind.is_dir() {
                true => directories.push(path),
                false => files.extend(place_below(wanted.root, &path).map(<[u8]>::to_vec)),
            }
        }
    }
    Ok(Listing {
        root: wanted.root.to_owned(),
        files,
        commit: None,
        dirty: false,
        warnings: Vec::new(),
        history: None,
    })
}

fn joined(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    [prefix, path].concat()
}

impl Listing {
    /// What people call the base: `4f1c2a9`, `4f1c2a9+dirty`, or where it is.
    pub(crate) fn label(&self) -> String {
        match &self.commit {
            Some(commit) => {
                let short = commit.get(..7).unwrap_or(commit);
                format!("{short}{}", if self.dirty { "+dirty" } else { "" })
            }
            None => "files".to_owned(),
        }
    }
}
