//! A tree put over a place of the file system for one command alone. Owns what is asked for and its validity; the mounts
//! are in `linux/tree.rs`, and who puts which layers together is no business of this crate's.

mod layer;
mod probe;
mod upper;

use std::path::{Component, Path, PathBuf};

use crate::call::InvalidCall;
use crate::protocol::launcher::{SharedTree, Tree, TreeUpper};
pub use layer::{LayerEntry, write_layer};
pub use probe::{ProviderReport, probe_workspaces};
pub(crate) use upper::read_regular;
pub use upper::{Change, ChangeKind, Changes, MOST_CHANGES, UpperDir};

/// A tree put over a place of the file system, for one command alone. Nothing of it is left when the command ends, but
/// what it changed.
///
/// It is mounted in namespaces of the command's own, at every level of isolation, and the command is the engine's own
/// user there, without any privileges. It has its own `/proc`, so it sees no other process.
///
/// ```
/// use fairtrial_exec::{Call, Workspace};
/// let mut call = Call::command(["make", "test"]);
/// let mut workspace = Workspace::new("/home/me/project", vec!["/home/me/.cache/snapshot".into()]);
/// workspace.hidden.push("/home/me/.cache".into());
/// call.cwd = Some(workspace.at.clone());
/// call.workspace = Some(workspace.into());
/// assert!(call.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Workspace {
    /// Where it appears: an existing directory of the host's.
    pub at: PathBuf,
    /// What it shows, topmost first. They are never changed, and are not to change while anybody uses them.
    pub layers: Vec<PathBuf>,
    /// Where changes go.
    pub upper: Upper,
    /// Directories of the host that appear in it.
    pub shared: Vec<Shared>,
    /// Files and directories, of the host or of the workspace, that are empty and read-only inside. What is not there
    /// when the command starts is not covered.
    pub hidden: Vec<PathBuf>,
    /// An existing directory of the host's that is empty inside and can be written to, for HOME and the like: it has the
    /// same path for every command, and each finds it as new. What is in it counts as changes in memory do.
    pub private: Option<PathBuf>,
    /// By whose privileges it is mounted.
    pub namespace: WorkspaceNamespace,
}

/// Where changes go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Upper {
    /// Into a file system in memory, gone with the outcome that shows it. A command that is found to have filled it ends
    /// with [`DiskLimit`](crate::Verdict::DiskLimit). What is in it counts as the command's memory.
    Memory {
        /// Its size.
        bytes: u64,
    },
    /// Into `upper` of an existing directory of the caller's, which keeps it: another workspace can have it as a layer.
    /// There is no quota. Each directory is for one command. The kernel is not asked to write it out: after a crash of the
    /// machine it may be damaged.
    Disk {
        /// Which directory. It also gets a `work`, and `shared` if something is shared copy-on-write.
        directory: PathBuf,
    },
}

/// A directory of the host that appears in a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shared {
    /// Where it appears: below the workspace's place.
    pub at: PathBuf,
    /// What appears; most often the same path.
    pub source: PathBuf,
    /// Whether it can be changed.
    pub mode: SharedMode,
}

/// Whether a shared directory can be changed; the source never is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SharedMode {
    /// It cannot.
    ReadOnly,
    /// It can, for this command alone.
    CopyOnWrite {
        /// What is put over it, topmost first: see [`Upper::of_shared`].
        layers: Vec<PathBuf>,
    },
}

/// By whose privileges a workspace is mounted. What commands see is the same, with one difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WorkspaceNamespace {
    /// Those that anybody has in a user namespace. Renaming a directory that is in a layer fails with `EXDEV`, as in most
    /// containers: programs then copy it.
    #[default]
    User,
    /// The engine's own: it is root, or has `CAP_SYS_ADMIN`. Layers of the one kind are no layers of the other if they
    /// hold directories that replaced others.
    Root,
}

/// Changes in memory unless somebody says otherwise.
const DEFAULT_UPPER_BYTES: u64 = 1 << 30;

impl Workspace {
    /// These layers, with changes in memory.
    #[must_use]
    pub fn new(at: impl Into<PathBuf>, layers: Vec<PathBuf>) -> Self {
        Self {
            at: at.into(),
            layers,
            upper: Upper::Memory {
                bytes: DEFAULT_UPPER_BYTES,
            },
            shared: Vec::new(),
            hidden: Vec::new(),
            private: None,
            namespace: WorkspaceNamespace::default(),
        }
    }

    /// Refuses what could not be mounted anywhere.
    pub fn validate(&self) -> Result<(), InvalidCall> {
        if self.layers.is_empty() {
            return Err(refusal("layers", "there are none; give at least one"));
        }
        if self.layers.len() > MOST_LAYERS {
            let problem = format!("there are more than {MOST_LAYERS}");
            return Err(refusal("layers", problem));
        }
        for (field, path) in self.paths() {
            validate_path(field, path)?;
        }
        if self.upper == (Upper::Memory { bytes: 0 }) {
            return Err(refusal("upper", "its size must be greater than 0"));
        }
        let outside = |shared: &&Shared| !is_below(&shared.at, &self.at);
        if let Some(shared) = self.shared.iter().find(outside) {
            let (one, other) = (shared.at.display(), self.at.display());
            return Err(refusal("shared", format!("`{one}` is not below `{other}`")));
        }
        Ok(())
    }

    fn paths(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let at = ("at", self.at.as_path());
        let layers = self.layers.iter().map(|layer| ("layers", layer.as_path()));
        let upper = match &self.upper {
            Upper::Memory { .. } => None,
            Upper::Disk { directory } => Some(("upper", directory.as_path())),
        };
        let shared = self.shared.iter().flat_map(|shared| {
            let own = [shared.at.as_path(), shared.source.as_path()];
            let layers = shared.layers().iter().map(PathBuf::as_path);
            let all = own.into_iter().chain(layers);
            all.map(|path| ("shared", path))
        });
        let hidden = self.hidden.iter().map(|path| ("hidden", path.as_path()));
        let private = self.private.iter().map(|path| ("private", path.as_path()));
        let places = [at].into_iter().chain(layers).chain(upper).chain(private);
        places.chain(shared).chain(hidden)
    }

    /// The first of its paths that is not there, of those that must be.
    pub(crate) fn missing(&self) -> Option<&Path> {
        let inside = |path: &Path| is_below(path, &self.at);
        let mut paths = self.paths().filter(|(field, path)| match *field {
            "hidden" => false,
            "shared" => self.shared.iter().all(|shared| shared.at != *path) || !inside(path),
            _ => true,
        });
        paths.find(|(_, path)| !path.exists()).map(|(_, path)| path)
    }

    /// As the launcher is asked for it.
    pub(crate) fn to_tree(&self) -> Tree {
        Tree {
            at: bytes(&self.at),
            layers: self.layers.iter().map(|layer| bytes(layer)).collect(),
            upper: match &self.upper {
                Upper::Memory { bytes } => TreeUpper::Memory { bytes: *bytes },
                Upper::Disk { directory } => TreeUpper::Disk {
                    directory: bytes(directory),
                },
            },
            shared: self.shared.iter().map(Shared::to_tree).collect(),
            hidden: self.hidden.iter().map(|path| bytes(path)).collect(),
            private: self.private.as_deref().map(bytes),
            by_root: self.namespace == WorkspaceNamespace::Root,
        }
    }
}

impl Shared {
    fn layers(&self) -> &[PathBuf] {
        match &self.mode {
            SharedMode::ReadOnly => &[],
            SharedMode::CopyOnWrite { layers } => layers,
        }
    }

    fn to_tree(&self) -> SharedTree {
        SharedTree {
            at: bytes(&self.at),
            source: bytes(&self.source),
            layers: self.layers().iter().map(|layer| bytes(layer)).collect(),
            writable: self.mode != SharedMode::ReadOnly,
        }
    }
}

impl Upper {
    /// What a command changed, as a layer for others; none if it was in memory.
    #[must_use]
    pub fn layer(&self) -> Option<PathBuf> {
        match self {
            Self::Memory { .. } => None,
            Self::Disk { directory } => Some(directory.join("upper")),
        }
    }

    /// The same of the shared directory of that number, which was copy-on-write.
    #[must_use]
    pub fn of_shared(&self, number: usize) -> Option<PathBuf> {
        match self {
            Self::Memory { .. } => None,
            Self::Disk { directory } => {
                let number = number.to_string();
                Some(directory.join("shared").join(number).join("upper"))
            }
        }
    }
}

/// The kernel takes a few more.
const MOST_LAYERS: usize = 400;

fn validate_path(field: &str, path: &Path) -> Result<(), InvalidCall> {
    let shown = path.display();
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(refusal(field, "has a NUL character"));
    }
    if !path.is_absolute() {
        return Err(refusal(
            field,
            format!("must be an absolute path, not `{shown}`"),
        ));
    }
    if path.parent().is_none() {
        return Err(refusal(field, "`/` is the whole host"));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(refusal(field, format!("`{shown}` has a `..` in it")));
    }
    Ok(())
}

fn is_below(path: &Path, above: &Path) -> bool {
    path != above && path.starts_with(above)
}

fn refusal(field: &str, problem: impl Into<String>) -> InvalidCall {
    InvalidCall::new(format!("workspace.{field}"), problem)
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        Workspace::new("/repo", vec!["/layer".into()])
    }

    fn refused(change: impl FnOnce(&mut Workspace)) -> String {
        let mut workspace = workspace();
        change(&mut workspace);
        workspace.validate().expect_err("refused").field
    }

    #[test]
    fn what_could_not_be_mounted_is_refused_by_name() {
        assert_eq!(workspace().validate(), Ok(()));
        let shared = |at: &str| Shared {
            at: at.into(),
            source: "/venv".into(),
            mode: SharedMode::ReadOnly,
        };
        let cases = [
            (refused(|one| one.layers.clear()), "layers"),
            (refused(|one| one.layers.push("relative".into())), "layers"),
            (refused(|one| one.at = "/".into()), "at"),
            (refused(|one| one.at = "/a/../b".into()), "at"),
            (refused(|one| one.hidden.push("x\0".into())), "hidden"),
            (
                refused(|one| one.upper = Upper::Memory { bytes: 0 }),
                "upper",
            ),
            (refused(|one| one.shared.push(shared("/repo"))), "shared"),
            (refused(|one| one.shared.push(shared("/repos/a"))), "shared"),
        ];
        for (refused, field) in cases {
            assert_eq!(refused, format!("workspace.{field}"));
        }
    }
}
