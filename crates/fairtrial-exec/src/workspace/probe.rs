//! Which kinds of workspaces can be had here, found out by using one of each.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::layer::{LayerEntry, write_layer};
use super::{Upper, Workspace, WorkspaceNamespace};
use crate::backend::Backend;
use crate::call::Call;
use crate::local::LocalBackend;
use crate::outcome::Outcome;
use crate::remove_tree;
use crate::sandbox::{Level, Sandbox};
use crate::verdict::Verdict;

/// Whether a kind of workspace works here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderReport {
    /// By whose privileges it was mounted.
    pub namespace: WorkspaceNamespace,
    /// Whether changes went into memory.
    pub in_memory: bool,
    /// Why it does not work, if it does not.
    pub problem: Option<String>,
}

/// What every workspace must allow: directories made, deleted, renamed and made anew, of layers and not.
const SCRIPT: &str = r#"set -e
mkdir new && mv new renamed && rmdir renamed
rm -r gone && mkdir gone && test -z "$(ls gone)"
mv moved elsewhere && test -e elsewhere/file && ! test -e moved
echo changed > kept/file
"#;

/// Longer than it takes on any machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Tries each kind of workspace, with layers in a directory of its own below `directory`, which must be there. That a
/// kind does not work is no error.
pub async fn probe_workspaces(
    backend: &LocalBackend,
    directory: &Path,
) -> io::Result<Vec<ProviderReport>> {
    let mut reports = Vec::new();
    for namespace in [WorkspaceNamespace::User, WorkspaceNamespace::Root] {
        for in_memory in [true, false] {
            let ground = Ground::make(directory)?;
            let problem = attempt(backend, &ground, namespace, in_memory).await;
            reports.push(ProviderReport {
                namespace,
                in_memory,
                problem,
            });
        }
    }
    Ok(reports)
}

/// A small tree, removed when it is dropped.
struct Ground(PathBuf);

impl Ground {
    fn make(directory: &Path) -> io::Result<Self> {
        use std::hash::{BuildHasher, Hasher, RandomState};
        let unique = RandomState::new().build_hasher().finish();
        let name = format!("probe-{}-{unique:016x}", std::process::id());
        let ground = Self(directory.join(name));
        for place in [ground.0.clone(), ground.at(), ground.kept()] {
            std::fs::create_dir(place)?;
        }
        let file = |path: &str| {
            let (bytes, mode) = (b"base".to_vec(), 0o644);
            (path.into(), Some(LayerEntry::File { bytes, mode }))
        };
        let files = ["gone/file", "moved/file", "kept/file"].map(file);
        write_layer(&ground.layer(), files, &[], SystemTime::UNIX_EPOCH)?;
        Ok(ground)
    }

    fn at(&self) -> PathBuf {
        self.0.join("at")
    }

    fn layer(&self) -> PathBuf {
        self.0.join("layer")
    }

    fn kept(&self) -> PathBuf {
        self.0.join("upper")
    }

    fn is_untouched(&self) -> bool {
        let base = |name: &str| {
            let text = std::fs::read(self.layer().join(name));
            text.is_ok_and(|text| text == b"base")
        };
        let empty = std::fs::read_dir(self.at()).is_ok_and(|mut found| found.next().is_none());
        empty
            && ["gone/file", "moved/file", "kept/file"]
                .into_iter()
                .all(base)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.0) {
            log::warn!("cannot remove `{}`: {error}", self.0.display());
        }
    }
}

async fn attempt(
    backend: &LocalBackend,
    ground: &Ground,
    namespace: WorkspaceNamespace,
    in_memory: bool,
) -> Option<String> {
    let mut workspace = Workspace::new(ground.at(), vec![ground.layer()]);
    workspace.namespace = namespace;
    workspace.upper = match in_memory {
        true => Upper::Memory { bytes: 16 << 20 },
        false => Upper::Disk {
            directory: ground.kept(),
        },
    };
    let mut call = Call::command(["sh", "-c", SCRIPT]);
    call.sandbox = Sandbox::new(Level::None);
    call.cwd = Some(workspace.at.clone());
    call.timeout = Some(TIMEOUT);
    call.workspace = Some(workspace.into());
    match backend.execute(call).await {
        Err(error) => Some(error.to_string()),
        Ok(outcome) if outcome.verdict != Verdict::Ok => Some(why(&outcome)),
        Ok(_) if !ground.is_untouched() => Some("what is below was changed".to_owned()),
        Ok(_) => None,
    }
}

fn why(outcome: &Outcome) -> String {
    let said = outcome.stderr.text();
    let error = outcome.error.as_ref().map(|error| error.message.as_str());
    match (said.trim(), error) {
        ("", Some(error)) => error.to_owned(),
        ("", None) => outcome.verdict.to_string(),
        (said, _) => said.to_owned(),
    }
}
