//! Phase 1: tests on the base, and on candidates beside it (CA-46 to CA-60). Decides nothing itself: `cases` does.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fairtrial_exec::{ChangeKind, Verdict};
use serde::{Deserialize, Serialize};

use super::ground::{CASES_FILE, Errand, Ground, Ran, TEST_HASH_SEED, Tree};
use super::layers::Layers;
use super::logs::{BUILD, file_name};
use super::turns::Turns;
use crate::cases::{
    Baseline, CallEnd, CallSummary, Comparison, Failure, FailureKind, Left, MOST_RESULT_BYTES,
    Output, Paths, PluginTerms, Results, ResultsFile, Trust, judge_correctness, pytest_environment,
    read_results,
};
use crate::evaluation::CaseCounts;
use crate::spec::{Build, ResultsKind, TestCommand};
use crate::stage::{Protect, Staged, TreePath};

/// How often the engine's own failure is forgiven (CA-56).
const RETRIES: u32 = 2;

/// Who runs tests.
pub(crate) struct Checking {
    pub(crate) ground: Ground,
    pub(crate) layers: Layers,
    pub(crate) turns: Turns,
    pub(crate) guard: Arc<Guard>,
    pub(crate) build: Option<Build>,
    /// Protected paths that the base's own build writes to: those of candidates may do so too.
    pub(crate) build_touches: OnceLock<BTreeSet<String>>,
    pub(crate) tests: Vec<TestCommand>,
    /// The directory of the plug-in for pytest.
    pub(crate) plugin: PathBuf,
    /// Where what builds write is kept.
    pub(crate) built: PathBuf,
    /// Where all that commands write to their streams is kept.
    pub(crate) logs: PathBuf,
    /// Where what judges look at is put.
    pub(crate) judged: PathBuf,
    /// Processes started so far.
    pub(crate) processes: AtomicU64,
}

/// What phase 1 found about a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Checked {
    pub(crate) failure: Option<Failure>,
    pub(crate) cases: Option<CaseCounts>,
    pub(crate) trust: Option<Trust>,
}

/// What a test command gave, and what it changed that it should not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tested {
    pub(crate) results: Results,
    /// Protected paths that it wrote to.
    pub(crate) touched: BTreeSet<String>,
}

impl Checking {
    /// The base's tree, built.
    pub(crate) async fn base_tree(&self) -> Result<Tree, Failure> {
        self.built(self.layers.base(), "base").await
    }

    /// Builds and tests a candidate.
    pub(crate) async fn check(
        &self,
        staged: &Staged,
        baseline: &Baseline,
        allowed: &BTreeSet<String>,
    ) -> (Checked, Option<Tree>) {
        let (checked, tree) = match self.try_check(staged, baseline, allowed).await {
            Ok((checked, tree)) => (checked, Some(tree)),
            Err(failure) => (
                Checked {
                    failure: Some(*failure),
                    cases: None,
                    trust: None,
                },
                None,
            ),
        };
        if checked.failure.is_some() {
            self.forget_build(&staged.id.full()).await;
            return (checked, None);
        }
        (checked, tree)
    }

    async fn try_check(
        &self,
        staged: &Staged,
        baseline: &Baseline,
        allowed: &BTreeSet<String>,
    ) -> Result<(Checked, Tree), Box<Failure>> {
        let tree = self.tree(staged).await?;
        let mut all = Vec::new();
        for test in &self.tests {
            let tested = self.test(&tree, test).await?;
            if let Some(path) = tested.touched.difference(allowed).next() {
                let message = format!("test `{}` wrote to `{path}`, which is protected", test.name);
                let failure = Failure::new(FailureKind::Tampered, message);
                return Err(Box::new(failure.shown_by(CallSummary::of(&tested.results))));
            }
            all.push(tested.results);
        }
        let judged = judge_correctness(baseline, &all);
        let checked = Checked {
            cases: Some(counts(&judged.comparison)),
            trust: Some(judged.trust),
            failure: judged.failure,
        };
        Ok((checked, tree))
    }

    /// A candidate's tree, built.
    pub(crate) async fn tree(&self, staged: &Staged) -> Result<Tree, Box<Failure>> {
        let written = self.layers.write(staged).await;
        let written = written.map_err(|error| Failure::of_engine(&error))?;
        Ok(self.built(written, &staged.id.full()).await?)
    }

    /// The tree with what the build command makes of it (CA-33).
    async fn built(&self, tree: Tree, name: &str) -> Result<Tree, Failure> {
        let Some(build) = &self.build else {
            return Ok(tree);
        };
        let built = self.build(build, tree, name).await;
        if built.is_err() {
            self.forget_build(name).await;
        }
        built
    }

    /// Nobody needs what a build left of one that failed, and others may need the room.
    async fn forget_build(&self, name: &str) {
        let kept = self.built.join(name);
        let removed = aside(move || match kept.exists() {
            true => fairtrial_exec::remove_tree(&kept),
            false => Ok(()),
        });
        removed.await.ok(); // it goes with the evaluation at the latest
    }

    async fn build(&self, build: &Build, mut tree: Tree, name: &str) -> Result<Tree, Failure> {
        let kept = self.built.join(name);
        let made = fresh_directory(&kept);
        made.map_err(|error| Failure::of_engine(&error))?;
        let errand = Errand {
            timeout: Some(build.timeout),
            kept_in: Some(kept.clone()),
            log: Some(self.logs.join(&tree.name).join(BUILD)),
            ..Errand::new(&build.command)
        };
        let ran = self.run(&tree, &errand, "build").await?;
        let (outcome, end) = (&ran.outcome, CallEnd::of(&ran.outcome));
        if outcome.verdict != Verdict::Ok {
            let kind = match outcome.verdict {
                Verdict::SetupFailed => FailureKind::Infra,
                _ => FailureKind::BuildFailed,
            };
            let failure = Failure::new(kind, format!("build: {}", end.described()));
            return Err(failure.shown_by(self.summary("build", end, &ran)));
        }
        let guard = Arc::clone(&self.guard);
        let looked = aside(move || Ok((touched(&ran, &guard)?, ran)));
        let (touched, ran) = looked.await?;
        // The first that is built is the base.
        let allowed = self.build_touches.get_or_init(|| touched.clone());
        if let Some(path) = touched.difference(allowed).next() {
            let message = format!("build wrote to `{path}`, which is protected");
            let failure = Failure::new(FailureKind::Tampered, message);
            return Err(failure.shown_by(self.summary("build", end, &ran)));
        }
        if ran.copy().is_some() {
            let frozen = self.layers.freeze_copy(ran, name).await;
            tree.frozen = Some(frozen.map_err(|error| Failure::of_engine(&error))?);
        } else {
            tree.layers.insert(0, kept.join("upper"));
            tree.built = Some(kept);
        }
        Ok(tree)
    }

    fn summary(&self, of: &str, end: CallEnd, ran: &Ran) -> CallSummary {
        let (paths, outcome) = (self.paths(ran), &ran.outcome);
        CallSummary {
            of: of.to_owned(),
            end,
            stdout: Output::of_captured(&outcome.stdout, &paths).text,
            stderr: Output::of_captured(&outcome.stderr, &paths).text,
        }
    }

    /// Runs a test command on a tree, and its judge if it has one.
    pub(crate) async fn test(
        &self,
        tree: &Tree,
        test: &TestCommand,
    ) -> Result<Tested, Box<Failure>> {
        if let Some(judge) = &test.judge {
            return self.judged(tree, test, judge).await;
        }
        let ran = self.run(tree, &self.errand(test, tree), &test.name).await?;
        self.read(ran, test, Trust::InProcess).await
    }

    /// What a command left: its results, and which protected paths it touched.
    pub(super) async fn read(
        &self,
        ran: Ran,
        test: &TestCommand,
        trust: Trust,
    ) -> Result<Tested, Box<Failure>> {
        let (paths, guard) = (self.paths(&ran), Arc::clone(&self.guard));
        let (name, kind, file) = (test.name.clone(), test.results, results_file(test));
        let read = move || -> std::io::Result<Tested> {
            let outcome = &ran.outcome;
            let found = file
                .as_ref()
                .map_or(Ok(None), |file| ran.read(file, MOST_RESULT_BYTES));
            let (bytes, is_too_large) = match found {
                Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => (None, true),
                found => (found?, false),
            };
            let left = Left {
                test: &name,
                trust,
                end: CallEnd::of(outcome),
                file: match &bytes {
                    Some(bytes) => ResultsFile::Bytes(bytes),
                    None if is_too_large => ResultsFile::TooLarge,
                    None => ResultsFile::Absent,
                },
                stdout: Output::of_captured(&outcome.stdout, &paths),
                stderr: Output::of_captured(&outcome.stderr, &paths),
            };
            Ok(Tested {
                results: read_results(kind, left, &paths),
                touched: touched(&ran, &guard)?,
            })
        };
        Ok(aside(read).await?)
    }

    pub(super) fn errand<'t>(&self, test: &'t TestCommand, tree: &Tree) -> Errand<'t> {
        let own_env = match test.results {
            ResultsKind::Pytest => {
                let (directory, results) = (
                    self.plugin.to_string_lossy(),
                    self.ground.at.join(CASES_FILE),
                );
                let terms = PluginTerms {
                    directory: &directory,
                    results: &results.to_string_lossy(),
                    case_timeout_s: test.case_timeout.map(|limit| limit.as_secs_f64()),
                };
                let given = |name: &str| self.ground.variable(name, &test.env);
                let own = pytest_environment(&terms, given).into_iter();
                own.map(|(name, value)| (OsString::from(name), OsString::from(value)))
                    .collect()
            }
            ResultsKind::Exit | ResultsKind::Junit => Vec::new(),
        };
        Errand {
            cwd: test.cwd.as_ref(),
            env: Some(&test.env),
            own_env,
            timeout: Some(test.timeout),
            time: test.time,
            hash_seed: TEST_HASH_SEED,
            log: Some(self.logs.join(&tree.name).join(file_name(&test.name))),
            ..Errand::new(&test.command)
        }
    }

    /// Runs a command, beside other tests but never beside a measurement (CA-61). The engine's own failures are forgiven a
    /// few times, and never the candidate's.
    pub(super) async fn run(
        &self,
        tree: &Tree,
        errand: &Errand<'_>,
        label: &str,
    ) -> Result<Ran, Failure> {
        let mut tries = 0;
        loop {
            let held = self.turns.shared(label).await;
            let held = held.map_err(|error| Failure::of_engine(&error))?;
            self.processes.fetch_add(1, Ordering::Relaxed);
            let ran = self.ground.execute(tree, errand).await;
            drop(held);
            match ran {
                Ok(ran) => return Ok(ran),
                Err(_) if tries < RETRIES => tries += 1,
                Err(error) => return Err(Failure::of_engine(&error)),
            }
        }
    }

    /// What differs between sides and says nothing about them.
    fn paths(&self, ran: &Ran) -> Paths {
        let (at, home) = ran.copy().unwrap_or((&self.ground.at, &self.ground.home));
        let pairs = [(home, "<home>"), (&self.plugin, "<plugin>"), (at, "<repo>")];
        Paths::new(pairs.map(|(path, word)| (path.to_string_lossy().into_owned(), word)))
    }
}

/// Does what blocks, where it holds nobody up.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(std::io::Error::other).flatten();
    done.map_err(|error| Failure::of_engine(&error))
}

/// A directory that is there and empty, whatever was there.
fn fresh_directory(path: &Path) -> std::io::Result<()> {
    if path.exists() {
        fairtrial_exec::remove_tree(path)?;
    }
    std::fs::create_dir_all(path)
}

/// Where a test command leaves its results.
fn results_file(test: &TestCommand) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    match test.results {
        ResultsKind::Exit => None,
        ResultsKind::Pytest => Some(CASES_FILE.into()),
        ResultsKind::Junit => {
            let place =
                |path: &TreePath| PathBuf::from(std::ffi::OsStr::from_bytes(path.as_bytes()));
            let cwd = test.cwd.as_ref().map(place).unwrap_or_default();
            Some(cwd.join(place(test.junit_path.as_ref()?)))
        }
    }
}

/// What may not be touched: by globs, and which files of the base that concerns.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    globs: Protect,
    files: Vec<TreePath>,
}

impl Guard {
    /// Of the base, and of what is shared: no link may stand where that will be mounted.
    pub(crate) fn new(
        globs: Protect,
        base: impl IntoIterator<Item = TreePath>,
        shared: Vec<TreePath>,
    ) -> Self {
        let files = base
            .into_iter()
            .filter(|path| globs.covering(path).is_some())
            .chain(shared)
            .collect();
        Self { globs, files }
    }

    /// Whoever takes a directory away, or puts another thing in its place, touches all that was in it.
    fn covers(&self, path: &TreePath) -> bool {
        self.globs.covering(path).is_some() || self.files.iter().any(|file| file.is_below(path))
    }
}

/// Protected paths that were changed (CA-58).
pub(super) fn touched(ran: &Ran, guard: &Guard) -> std::io::Result<BTreeSet<String>> {
    use std::os::unix::ffi::OsStrExt;
    let in_tree = |path: &Path| TreePath::new(path.as_os_str().as_bytes()).ok();
    let is_covered = |path: &Path| in_tree(path).is_some_and(|path| guard.covers(&path));
    let mut touched = BTreeSet::new();
    ran.visit(is_covered, |path, kind| {
        // That a directory is there says nothing; what is in it does.
        if kind != ChangeKind::Directory {
            touched.extend(in_tree(path).map(|path| path.to_string()));
        }
    })?;
    Ok(touched)
}

fn counts(comparison: &Comparison) -> CaseCounts {
    CaseCounts {
        passed: comparison.passed as u64,
        total: comparison.total as u64,
        fixed: comparison.fixed.len() as u64,
        new: comparison.new_total as u64,
    }
}
