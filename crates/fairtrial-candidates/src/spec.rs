//! The evaluation as it was asked for: every key of `EVAL.yaml`, typed, with its default.
//!
//! Reads the file with every fault and its place (CA-6, CA-7), and looks at nothing else. What only the machine can tell
//! (whether a path leads anywhere, whether git knows a commit) others check, who find in [`Places`] where to point.

mod base;
mod bench;
mod changes;
mod command;
mod field;
mod guesses;
mod json_node;
mod load;
mod measure;
mod path;
mod places;
mod proposer;
mod reader;
mod search;
mod secrets;
mod terms;
mod test_command;
#[cfg(test)]
mod tests;
mod units;
mod worded;
mod workspace;

pub use base::{BaseRef, Shared, SharedMode, Source};
pub use bench::{Bench, BenchCommand, Loops};
pub use command::{Command, LOOPS};
pub use fairtrial_document::fault::{Fault, Invalid, Place};
pub use measure::{Measure, Pin, Tiebreak};
pub use path::SpecPath;
pub use places::Places;
pub use search::{CommandProposer, Proposer, Search};
pub use test_command::{Baseline, Build, Judge, OutputCheck, ResultsKind, TestCommand};
pub use workspace::{Env, Git, Profile, Provider, Upper, Workspace};

use fairtrial_exec::{Limits, Sandbox};
use serde_json::{Value as Json, json};

/// An evaluation as it was asked for.
///
/// ```
/// use std::path::Path;
/// use fairtrial_candidates::spec::{Bench, Spec};
///
/// let text = "{version: 1, candidates: {patches: fixes/}, tests: [{command: make test}]}";
/// let spec = Spec::parse(Path::new("/project/EVAL.yaml"), text)?;
/// assert_eq!(spec.candidates[0].path().path, Path::new("/project/fixes"));
/// assert_eq!(spec.bench, Bench::None);
///
/// let wrong = Spec::parse(Path::new("EVAL.yaml"), &text.replace("tests", "test")).unwrap_err();
/// assert_eq!(wrong.to_string(), "EVAL.yaml:1:45: unknown key `test` in the evaluation; did you mean `tests`?");
/// # Ok::<(), fairtrial_candidates::spec::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// A git work tree or a plain directory.
    pub repo: SpecPath,
    /// What of it candidates change.
    pub base: BaseRef,
    /// Ignored files that are taken nevertheless.
    pub include: Vec<String>,
    /// Files that are not taken, whatever `include` says.
    pub exclude: Vec<String>,
    /// Whether initialised submodules are taken.
    pub submodules: bool,
    /// Directories that all workspaces share.
    pub shared: Vec<Shared>,
    /// Where candidates come from; perhaps nowhere, where there is a search.
    pub candidates: Vec<Source>,
    /// What is run once per side before anything else.
    pub build: Option<Build>,
    /// What shows whether a candidate is right; at least one.
    pub tests: Vec<TestCommand>,
    /// How the base's own results are had.
    pub baseline: Baseline,
    /// What candidates may not touch.
    pub protect: Vec<String>,
    /// What is measured.
    pub bench: Bench,
    /// How.
    pub measure: Measure,
    /// How much runs at once while nothing is measured; where it is not said, what the machine has.
    pub parallel: Option<u32>,
    /// What each command may use.
    pub limits: Limits,
    /// How each command is kept apart.
    pub sandbox: Sandbox,
    /// Variables that commands find.
    pub env: Env,
    /// Where candidates run.
    pub workspace: Workspace,
    /// Whether winner and base are profiled.
    pub profile: Profile,
    /// How more candidates are asked for.
    pub search: Option<Search>,
    /// Where results go.
    pub output: SpecPath,
    /// Where the keys stand.
    pub places: Places,
}

/// The one version there is.
const VERSION: u64 = 1;

impl Spec {
    /// All keys, defaults filled in, paths absolute: given back to [`Spec::from_json`], it means the same (CA-10).
    #[must_use]
    pub fn to_json(&self) -> Json {
        let list = |items: &mut dyn Iterator<Item = Json>| Json::from_iter(items);
        json!({
            "version": VERSION,
            "repo": self.repo.to_json(),
            "base": self.base.to_json(),
            "include": self.include,
            "exclude": self.exclude,
            "submodules": self.submodules,
            "shared": list(&mut self.shared.iter().map(Shared::to_json)),
            "candidates": list(&mut self.candidates.iter().map(Source::to_json)),
            "build": self.build.as_ref().map(Build::to_json),
            "tests": list(&mut self.tests.iter().map(TestCommand::to_json)),
            "baseline": self.baseline.to_json(),
            "protect": self.protect,
            "bench": self.bench.to_json(),
            "measure": self.measure.to_json(),
            "parallel": self.parallel,
            "limits": terms::limits_json(&self.limits),
            "sandbox": terms::sandbox_json(&self.sandbox),
            "env": self.env.to_json(),
            "workspace": self.workspace.to_json(),
            "profile": self.profile.to_json(),
            "search": self.search.as_ref().map(Search::to_json),
            "output": self.output.to_json(),
        })
    }

    /// What people should know of a search that has nothing to begin with.
    #[must_use]
    pub(crate) fn idle_search(&self) -> Option<String> {
        let is_idle = self.search.is_some() && self.candidates.is_empty();
        let warning = "there are no candidates: a `search` betters those it is given, and asks for no first ones";
        is_idle.then(|| warning.to_owned())
    }

    /// Why there is nobody to ask, where a search is wanted: for those who have no function to stand in.
    #[must_use]
    pub fn missing_proposer(&self) -> Option<Fault> {
        match self.search.as_ref()?.proposer {
            None => {
                let message = "`proposer` is missing in `search`";
                Some(self.places.fault("search", message))
            }
            Some(Proposer::Function { .. }) => {
                let message =
                    "`proposer` names nobody to ask (give a `command`, or `base_url` and `model`)";
                Some(self.places.fault("search.proposer", message))
            }
            Some(_) => None,
        }
    }
}
