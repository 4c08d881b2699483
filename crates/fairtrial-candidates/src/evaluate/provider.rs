//! Which kind of workspace candidates get: the first of the chain that works here (CA-27).

use std::path::Path;

use fairtrial_exec::{LocalBackend, ProviderReport, WorkspaceNamespace, probe_workspaces};

use super::error::EvaluateError;
use crate::evaluation::ProviderFacts;
use crate::spec::{Provider, Spec};

/// The kind that was chosen.
#[derive(Debug)]
pub(crate) struct Provided {
    pub(crate) namespace: WorkspaceNamespace,
    pub(crate) facts: ProviderFacts,
}

/// The chain, and what people call its links.
const CHAIN: [(Provider, WorkspaceNamespace, &str); 2] = [
    (
        Provider::OverlayUserns,
        WorkspaceNamespace::User,
        "overlay(userns)",
    ),
    (
        Provider::OverlayRoot,
        WorkspaceNamespace::Root,
        "overlay(root)",
    ),
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
    for (provider, namespace, name) in CHAIN {
        if asked != Provider::Auto && asked != provider {
            continue;
        }
        match problem(&tried, namespace) {
            None => {
                let facts = ProviderFacts {
                    name: name.to_owned(),
                    same_path: true,
                    skipped,
                };
                return Ok(Provided { namespace, facts });
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

/// Why changes in memory cannot be had with it, if they cannot.
fn problem(tried: &[ProviderReport], namespace: WorkspaceNamespace) -> Option<String> {
    let mut of_kind = tried
        .iter()
        .filter(|report| report.namespace == namespace && report.in_memory);
    match of_kind.next() {
        Some(report) => report.problem.clone(),
        None => Some("it was not tried".to_owned()),
    }
}
