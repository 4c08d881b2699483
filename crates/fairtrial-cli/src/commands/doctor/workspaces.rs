//! Which kinds of workspaces can be had for rival changes of a repository (CA-27).

use std::path::Path;

use fairtrial_exec::{LocalBackend, WorkspaceNamespace, probe_copy, probe_workspaces};
use serde_json::{Map, Value as Json, json};

/// The kinds in the order in which they are tried, each with why it cannot be had.
#[derive(Default)]
pub(super) struct Workspaces(Vec<(&'static str, Option<String>)>);

impl Workspaces {
    /// Tries them all in a directory.
    pub(super) async fn try_in(backend: &LocalBackend, directory: &Path) -> Self {
        let tried = probe_workspaces(backend, directory).await;
        let overlay = |namespace: WorkspaceNamespace| match &tried {
            Err(error) => Some(error.to_string()),
            Ok(reports) => {
                let mut of_kind = reports
                    .iter()
                    .filter(|report| report.namespace == namespace && report.in_memory);
                of_kind.next().and_then(|report| report.problem.clone())
            }
        };
        let copy = |reflink: bool| {
            probe_copy(directory, reflink)
                .err()
                .map(|why| why.to_string())
        };
        Self(vec![
            ("overlay(userns)", overlay(WorkspaceNamespace::User)),
            ("overlay(root)", overlay(WorkspaceNamespace::Root)),
            ("reflink", copy(true)),
            ("copy", copy(false)),
        ])
    }

    /// The kind that is taken, if any can be had.
    pub(super) fn best(&self) -> Option<&'static str> {
        let mut there = self.0.iter().filter(|(_, problem)| problem.is_none());
        there.next().map(|(name, _)| *name)
    }

    pub(super) fn text(&self) -> String {
        let lines = self.0.iter().map(|(name, problem)| match problem {
            None => format!("  {name:<16} available\n"),
            Some(why) => format!("  {name:<16} unavailable: {why}\n"),
        });
        format!(
            "\nworkspaces, the first is taken\n{}",
            lines.collect::<String>()
        )
    }

    pub(super) fn json(&self) -> Json {
        let entries = self.0.iter().map(|(name, problem)| {
            let entry = json!({"available": problem.is_none(), "reason": problem});
            ((*name).to_owned(), entry)
        });
        Json::Object(entries.collect::<Map<_, _>>())
    }
}
