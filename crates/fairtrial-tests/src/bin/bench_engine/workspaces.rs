//! What a workspace costs a command (CA-98).

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use fairtrial_exec::{
    Call, LayerEntry, Level, Sandbox, Verdict, Workspace, WorkspaceNamespace, write_layer,
};
use serde_json::{Value as Json, json};

use crate::{Bench, Failure, run};

/// Files of the snapshot.
const FILES: usize = 5_000;

impl Bench {
    /// A program that does nothing, so often: seconds from its submission to exec, and until its outcome is there. `how` is
    /// `bare`, `userns` or `root`.
    pub(crate) async fn workspace(&self, how: &str, count: usize) -> Result<Json, Failure> {
        let mut call = Call::command(["/bin/true"]);
        call.sandbox = Sandbox::new(Level::None);
        let namespace = match how {
            "bare" => None,
            "userns" => Some(WorkspaceNamespace::User),
            "root" => Some(WorkspaceNamespace::Root),
            other => return Err(format!("`{other}` is no way to mount").into()),
        };
        if let Some(namespace) = namespace {
            let at = self.dir.path().join("repo");
            std::fs::create_dir_all(&at)?;
            let mut workspace = Workspace::new(&at, vec![self.snapshot()?]);
            workspace.namespace = namespace;
            call.cwd = Some(at);
            call.workspace = Some(workspace.into());
        }
        let (mut to_exec, mut whole) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let began = Instant::now();
            let outcome = run(&self.backend, call.clone()).await?;
            whole.push(began.elapsed().as_secs_f64());
            if outcome.verdict != Verdict::Ok {
                return Err(format!("{}: {:?}", outcome.verdict, outcome.error).into());
            }
            to_exec.push(outcome.metrics.queue_ns.ok_or("no time")? as f64 / 1e9);
        }
        Ok(json!({"to_exec": to_exec, "whole": whole}))
    }

    fn snapshot(&self) -> Result<PathBuf, Failure> {
        let layer = self.dir.path().join("snapshot");
        if !layer.exists() {
            let entries = (0..FILES).map(|n| {
                let bytes = format!("file {n}\n").repeat(100).into_bytes();
                let path = format!("{}/{}/{n}", n % 10, n % 100).into();
                (path, Some(LayerEntry::File { bytes, mode: 0o644 }))
            });
            write_layer(&layer, entries, &[], SystemTime::UNIX_EPOCH)?;
        }
        Ok(layer)
    }
}
