//! What these tests are told with: a repository, its snapshot, and commands that find the snapshot in its place.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fairtrial_exec::LayerEntry;
use fairtrial_exec::{
    Call, Change, ChangeKind, Level, OnMissing, Outcome, Sandbox, Upper, Verdict, Workspace,
    WorkspaceNamespace, write_layer,
};

use fairtrial_tests::{Story, note};

/// A path of a layer, and what is there.
type Entry = (PathBuf, Option<LayerEntry>);

/// A way to have a workspace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) namespace: WorkspaceNamespace,
    pub(super) level: Level,
}

/// All of them; those that only root has if this is root.
pub(super) fn kinds() -> Vec<Kind> {
    let mut namespaces = vec![WorkspaceNamespace::User];
    if rustix::process::geteuid().is_root() {
        namespaces.push(WorkspaceNamespace::Root);
    } else {
        note("not tried: workspaces mounted by root, for this is not root");
    }
    let levels = Level::ALL;
    let all = namespaces
        .into_iter()
        .flat_map(|namespace| levels.map(|level| Kind { namespace, level }));
    all.collect()
}

/// A repository with a snapshot of it.
pub(super) struct Ground {
    pub(super) story: Story,
}

impl Ground {
    /// With these files, in the snapshot. The user's own tree has one more, by which it is told apart.
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let story = Story::with(|config| config.max_workers = 8);
        let ground = Self { story };
        std::fs::create_dir(ground.repo()).expect("a directory can be made");
        std::fs::write(ground.repo().join("mine"), "the user's own").expect("written");
        ground.layer("base", files.iter().map(|(path, text)| file(path, text)));
        ground
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.story.path().join(name)
    }

    pub(super) fn repo(&self) -> PathBuf {
        self.path("repo")
    }

    pub(super) fn base(&self) -> PathBuf {
        self.path("base")
    }

    /// A layer of that name, on top of the base.
    pub(super) fn layer(&self, name: &str, entries: impl IntoIterator<Item = Entry>) -> PathBuf {
        let path = self.path(name);
        let below = match name {
            "base" => Vec::new(),
            _ => vec![self.base()],
        };
        write_layer(&path, entries, &below, long_ago()).expect("a layer can be written");
        path
    }

    /// A new directory of that name.
    pub(super) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).expect("a directory can be made");
        path
    }

    /// The snapshot in the repository's place.
    pub(super) fn workspace(&self, kind: Kind) -> Workspace {
        let mut workspace = Workspace::new(self.repo(), vec![self.base()]);
        workspace.namespace = kind.namespace;
        workspace.upper = Upper::Memory { bytes: 64 << 20 };
        workspace
    }

    /// A shell script in a workspace.
    pub(super) fn call(&self, kind: Kind, workspace: Workspace, script: &str) -> Call {
        let mut call = Call::command(["sh", "-ec", script]);
        call.sandbox = Sandbox::new(kind.level);
        // Without a user namespace there is no `strict`, but most of it.
        call.sandbox.on_missing = OnMissing::Degrade;
        if kind.level == Level::Confined {
            // What the scripts look at besides their workspace: other levels show it unasked.
            call.sandbox.read = vec!["/proc".into(), self.story.path().into()];
        }
        call.cwd = Some(workspace.at.clone());
        call.timeout = Some(Duration::from_secs(50));
        call.workspace = Some(Arc::new(workspace));
        call
    }

    /// Runs a script in a workspace of the snapshot alone.
    pub(super) async fn run(&self, kind: Kind, script: &str) -> Outcome {
        self.run_in(kind, self.workspace(kind), script).await
    }

    pub(super) async fn run_in(&self, kind: Kind, workspace: Workspace, script: &str) -> Outcome {
        self.story.run(self.call(kind, workspace, script)).await
    }
}

/// The text that a script wrote which did what it was to do.
pub(super) fn said(outcome: &Outcome, kind: Kind) -> String {
    let (out, err) = (outcome.stdout.text(), outcome.stderr.text());
    let error = &outcome.error;
    assert_eq!(
        outcome.verdict,
        Verdict::Ok,
        "{kind:?}: {error:?} {out} {err}"
    );
    out
}

/// What was changed, as far as it is no directory that is as it was.
pub(super) fn changed(outcome: &Outcome) -> Vec<(String, ChangeKind)> {
    let upper = outcome.upper.as_ref().expect("it had a workspace");
    let changes = upper.changes().expect("they can be looked at");
    assert!(changes.complete);
    assert_eq!(changes.total, changes.paths.len() as u64);
    let told = changes.paths.into_iter().map(|Change { path, kind }| {
        let path = path.to_str().expect("a plain name").to_owned();
        (path, kind)
    });
    told.filter(|(_, kind)| *kind != ChangeKind::Directory)
        .collect()
}

pub(super) fn file(path: &str, text: &str) -> Entry {
    file_of(path, text, 0o644)
}

pub(super) fn file_of(path: &str, text: &str, mode: u32) -> Entry {
    let bytes = text.as_bytes().to_vec();
    (path.into(), Some(LayerEntry::File { bytes, mode }))
}

pub(super) fn gone(path: &str) -> Entry {
    (path.into(), None)
}

pub(super) fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_789)
}

/// All that there is to know of a tree: for each path its mode, time, size and what is in it.
pub(super) fn census(root: &Path) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(path) = left.pop() {
        let meta = path.symlink_metadata().expect("it is there");
        let bytes = if meta.is_dir() {
            let entries = std::fs::read_dir(&path).expect("it can be read");
            left.extend(entries.map(|entry| entry.expect("it can be read").path()));
            Vec::new()
        } else {
            std::fs::read(&path).unwrap_or_default()
        };
        let mode = meta.permissions().mode();
        found.insert(path, (mode, meta.mtime(), meta.mtime_nsec(), bytes));
    }
    found
}
