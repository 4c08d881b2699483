//! Judges: who says whether a candidate is right, where the candidate cannot reach (CA-59, CA-60).
//!
//! The candidate's command runs where the judge's files are not. Then the judge runs on the base, with those files, and looks
//! at what the candidate left: its output, its end, and regular files that it wrote.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairtrial_exec::ChangeKind;

use super::correctness::{Checking, Tested, aside, touched};
use super::ground::{Errand, Ran, Tree};
use crate::cases::{CallEnd, EXIT_FILE, Failure, FailureKind, Trust, exit_json, judged_results};
use crate::spec::{Judge, TestCommand};
use crate::stage::{Protect, TreePath};

/// Tells a judge where to look.
const CANDIDATE_OUT: &str = "FAIRTRIAL_CANDIDATE_OUT";

/// What a judge is shown of a candidate's files, in all.
const MOST_BYTES: u64 = 1 << 30;

impl Checking {
    /// The judge's word on what a test command left.
    pub(super) async fn judged(
        &self,
        tree: &Tree,
        test: &TestCommand,
        judge: &Judge,
    ) -> Result<Tested, Box<Failure>> {
        let errand = Errand {
            whole_output: true,
            ..self.errand(test, tree)
        };
        let ran = self.run(tree, &errand, &test.name).await?;
        let end = CallEnd::of(&ran.outcome);
        let number = self.processes.load(Ordering::Relaxed);
        let place = self.judged.join(format!(
            "{}-{number:08}",
            &tree.hash[..16.min(tree.hash.len())]
        ));
        let globs = Protect::new(&judge.outputs)
            .map_err(|fault| Failure::new(FailureKind::Infra, fault.to_string()))?;
        let (room, guard, ended) = (place.clone(), Arc::clone(&self.guard), end.clone());
        let found = aside(move || {
            let is_all = show(&room, &ran, &ended, &globs)?;
            Ok((is_all, touched(&ran, &guard)?))
        });
        let (is_all, found) = found.await?;
        if !is_all {
            let message = format!(
                "test `{}` left more than a judge is shown, 1 GiB",
                test.name
            );
            return Err(Box::new(Failure::new(FailureKind::Limit, message)));
        }
        let judging = Errand {
            env: Some(&test.env),
            timeout: Some(judge.timeout),
            own_env: [
                vec![(
                    OsString::from(CANDIDATE_OUT),
                    place.clone().into_os_string(),
                )],
                self.errand(test, tree).own_env,
            ]
            .concat(),
            shows: judge
                .files
                .iter()
                .filter_map(|files| files.path.canonicalize().ok())
                .chain([place.clone()])
                .collect(),
            ..Errand::new(&judge.command)
        };
        let base = self.layers.base();
        let ran = self
            .run(&base, &judging, &format!("judge of {}", test.name))
            .await?;
        let at_root = TestCommand {
            cwd: None,
            ..test.clone()
        };
        let said = self.read(ran, &at_root, Trust::Judge).await?;
        aside(move || fairtrial_exec::remove_tree(&place))
            .await
            .ok(); // it goes with the evaluation at the latest
        Ok(Tested {
            results: judged_results(end, said.results)?,
            touched: found,
        })
    }
}

/// Puts what a command left where the judge finds it; false if that is too much.
fn show(place: &Path, ran: &Ran, end: &CallEnd, globs: &Protect) -> io::Result<bool> {
    let outcome = &ran.outcome;
    fs::create_dir_all(place)?;
    fs::write(place.join("stdout"), outcome.stdout.bytes())?;
    fs::write(place.join("stderr"), outcome.stderr.bytes())?;
    fs::write(place.join(EXIT_FILE), exit_json(end))?;
    copy_outputs(ran, globs, &place.join("files"))
}

/// Regular files only: a link could lead a judge to what the candidate never wrote.
fn copy_outputs(ran: &Ran, globs: &Protect, into: &Path) -> io::Result<bool> {
    let mut wanted: Vec<PathBuf> = Vec::new();
    let is_asked_for = |path: &Path| {
        let path = TreePath::new(path.as_os_str().as_bytes());
        path.is_ok_and(|path| globs.covering(&path).is_some())
    };
    ran.visit(is_asked_for, |path, kind| {
        if kind == ChangeKind::Written {
            wanted.push(path.to_owned());
        }
    })?;
    let mut left = MOST_BYTES;
    for path in wanted {
        let Some(file) = ran.open(&path)? else {
            continue;
        };
        let target = into.join(&path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        // A file may have holes, and be far larger than what its writer may write.
        let bytes = file.metadata()?.len();
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => return Ok(false),
        }
        io::copy(&mut file.take(bytes), &mut fs::File::create(target)?)?;
    }
    Ok(true)
}
