//! Which kind of workspace candidates get: the first of the chain that works here (CA-27).

use std::path::Path;

use fairtrial_exec::{
    LocalBackend, ProviderReport, WorkspaceNamespace, probe_copy, probe_workspaces,
};

use super::error::EvaluateError;
use crate::evaluation::ProviderFacts;
use crate::spec::{Provider, Spec};

/// The kind that was chosen.
#[derive(Debug)]
pub(crate) struct Provided {
    pub(crate) how: How,
    pub(crate) facts: ProviderFacts,
}

/// How a command gets its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Mounted.
    Overlay(WorkspaceNamespace),
    /// Copied; with `reflink`, files share their bytes until they are written.
    Copy { reflink: bool },
    /// Copied into a work tree that git knows.
    Worktree,
}

/// The chain, and what people call its links.
const CHAIN: [(Provider, How, &str); 5] = [
    (
        Provider::OverlayUserns,
        How::Overlay(WorkspaceNamespace::User),
        "overlay(userns)",
    ),
    (
        Provider::OverlayRoot,
        How::Overlay(WorkspaceNamespace::Root),
        "overlay(root)",
    ),
    (Provider::Reflink, How::Copy { reflink: true }, "reflink"),
    (Provider::Copy, How::Copy { reflink: false }, "copy"),
    (Provider::Worktree, How::Worktree, "worktree"),
];

/// Tries kinds in the directory `room`, and takes the first that works, or the one that is asked for.
pub(crate) async fn choose(
    spec: &Spec,
    backend: &LocalBackend,
    room: &Path,
) -> Result<Provided, EvaluateError> {
    let tried = probe_workspaces(backend, room).await;
    let tried = tried.map_err(EvaluateError::attempting("trying kinds of workspaces"))?;
    let asked = spec.workspace.provider;
    let mut skipped = Vec::new();
    for (provider, how, name) in CHAIN {
        if asked != Provider::Auto && asked != provider {
            continue;
        }
        match problem(&tried, how, room) {
            None => {
                let same_path = matches!(how, How::Overlay(_));
                let facts = ProviderFacts {
                    name: name.to_owned(),
                    same_path,
                    skipped,
                };
                return Ok(Provided { how, facts });
            }
            Some(why) => skipped.push((name.to_owned(), why)),
        }
    }
    let reasons: Vec<String> = skipped
        .into_iter()
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    Err(EvaluateError::Failed(format!(
        "no kind of workspace can be had here: {}",
        reasons.join("; ")
    )))
}

/// Why a kind cannot be had, if it cannot.
fn problem(tried: &[ProviderReport], how: How, room: &Path) -> Option<String> {
    match how {
        How::Overlay(namespace) => {
            let mut of_kind = tried
                .iter()
                .filter(|report| report.namespace == namespace && report.in_memory);
            match of_kind.next() {
                Some(report) => report.problem.clone(),
                None => Some("it was not tried".to_owned()),
            }
        }
        How::Copy { reflink } => probe_copy(room, reflink).err().map(|why| why.to_string()),
        How::Worktree => probe_copy(room, false).err().map(|why| why.to_string()),
    }
}
