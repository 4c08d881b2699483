//! What an evaluation has to say: `evaluation.json` (CA-79).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cases::{Failure, FailureKind, Unsteady};
use crate::evaluate::State;
use crate::measure::{Bench, Confirmation, Judgement, Metric};
use crate::search::Ledger;
use crate::stage::{DiffSize, Origin};

mod times;

pub use times::{BenchFacts, Compared, SideTimes, StartupSource};
pub(crate) use times::{fill, gross_startup};

/// Of the layout of [`EvaluationReport`].
pub const REPORT_VERSION: u32 = 1;
/// The JSON schema of `evaluation.json`. It knows every key: others are refused.
pub const REPORT_SCHEMA: &str = include_str!("evaluation/schema.json");

/// The whole of an evaluation's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationReport {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// What was asked for, defaults filled in.
    pub spec: Value,
    /// What was changed by candidates.
    pub base: BaseFacts,
    /// Where it was run.
    pub machine: Machine,
    /// How workspaces were made.
    pub provider: ProviderFacts,
    /// What the tests give without a change.
    pub baseline: BaselineFacts,
    /// Half the width of the A/A control's interval, as a share; none if nothing was measured.
    pub noise_floor: Option<f64>,
    /// Twice, the base differed from itself: no verdict of speed holds.
    pub aa_failed: bool,
    /// Best first; those that failed last.
    pub evaluations: Vec<Evaluation>,
    /// The id of the winner.
    pub winner: Option<String>,
    /// What was measured on which terms; none if nothing was.
    pub measurement: Option<Measurement>,
    /// The winner and the base, line by line; none if there is no winner, or nobody asked for it.
    pub profile: Option<ProfileReport>,
    /// What proposers were asked and answered; none without a search.
    pub proposals: Option<Ledger>,
    /// What each phase took.
    pub costs: Costs,
    /// What people should know.
    pub warnings: Vec<String>,
}

/// The frozen tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BaseFacts {
    /// Of its content.
    pub hash: String,
    /// What people call it: `4f1c2a9+dirty`.
    pub label: String,
    /// The commit it is of, or was changed from.
    pub commit: Option<String>,
    /// Whether it differs from that.
    pub dirty: bool,
    /// How many files it has.
    pub files: u64,
}

/// Where it was run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Changes when it is started again.
    pub boot_id: String,
    /// Its processors' name.
    pub cpu: String,
    /// Processors that could be used.
    pub cpus: usize,
    /// Its kernel.
    pub kernel: String,
    /// Its name.
    pub node: String,
}

/// How workspaces were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderFacts {
    /// Which provider.
    pub name: String,
    /// Whether commands ran at the repository's own path.
    pub same_path: bool,
    /// Providers before it, and why they could not be used.
    pub skipped: Vec<(String, String)>,
}

/// What the tests give without a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BaselineFacts {
    /// How often they were run.
    pub runs: u32,
    /// Cases of all test commands.
    pub cases: u64,
    /// Those that candidates are judged by.
    pub judged: u64,
    /// Those of them that pass.
    pub passing: u64,
    /// Those that candidates are not judged by.
    pub quarantined: Vec<QuarantinedCase>,
}

/// A case that candidates are not judged by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuarantinedCase {
    /// The test command, by name.
    pub test: String,
    /// The case's id.
    pub case: String,
    /// What is wrong with it.
    pub why: Unsteady,
}

/// On which terms speed was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// By what sides were compared.
    pub metric: Metric,
    /// Why instructions and cycles were not counted; none if they were.
    pub counters: Option<String>,
    /// The processors that measured runs had to themselves; none if they were not pinned.
    pub pinned_to: Vec<usize>,
    /// Why that one, or none.
    pub pinning: String,
    /// By bench command: loop counts, start-up, and the times of each side.
    pub benches: BTreeMap<String, BenchFacts>,
    /// Races.
    pub rounds: u32,
    /// Runs, repeats and calibration included.
    pub runs: u64,
    /// Whole blocks.
    pub blocks: u64,
    /// Runs made because others were disturbed.
    pub repeated: u64,
    /// Runs kept though disturbed.
    pub flagged: u64,
}

/// What is known of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Its place in the ranking, from 1; none of those that failed or stand for nothing.
    pub rank: Option<u32>,
    /// Who it is; none if it could not be staged.
    pub id: Option<String>,
    /// What people call it.
    pub name: String,
    /// The candidate it was made from.
    pub parent: Option<String>,
    /// How it came to be.
    pub origin: Origin,
    /// 1 without a known parent, else one more than the parent's.
    pub generation: usize,
    /// How far it got.
    pub state: State,
    /// The candidate that is the same program, and whose result it has.
    pub duplicate_of: Option<String>,
    /// Why it is out.
    pub failure: Option<Failure>,
    /// Its test cases.
    pub cases: Option<CaseCounts>,
    /// What the race said.
    pub judgement: Option<Judgement>,
    /// What a new series said of it.
    pub confirmation: Option<Confirmation>,
    /// What was counted of it to break a tie with the leader; none if nobody asked for that, or there was no tie.
    pub tiebreak: Option<Tiebreak>,
    /// Medians of what was measured of it.
    pub metrics: Option<MedianMetrics>,
    /// Start-up's share of the base's run, where whole runs were compared and it is over a third: the ratio is then one of
    /// start-up too.
    #[serde(default)]
    pub gross_startup: Option<f64>,
    /// How much it changes.
    pub size: Option<DiffSize>,
    /// Whatever its maker wanted to keep with it.
    pub meta: Option<serde_json::Map<String, Value>>,
}

/// How a tie with the leader was broken: by a count, which is no measured time and changes no verdict (CA-72).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tiebreak {
    /// Who counted: `callgrind`.
    pub by: String,
    /// Its place among those that equal the leader is by this.
    pub used: bool,
    /// What was counted.
    #[serde(flatten)]
    pub count: InstructionCount,
}

/// Instructions of one run of each bench command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstructionCount {
    /// By bench command.
    pub instructions: BTreeMap<String, u64>,
    /// Why there is no count.
    pub failed: Option<String>,
}

/// Test cases of a candidate beside the base's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseCounts {
    /// As in the base, or better.
    pub passed: u64,
    /// All that were judged.
    pub total: u64,
    /// Failing in the base, and passing now.
    pub fixed: u64,
    /// Not in the base.
    pub new: u64,
}

/// Medians over a candidate's measured runs; where the time per loop is compared, over those of many loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MedianMetrics {
    /// Wall time.
    pub wall_s: Option<f64>,
    /// User and system time.
    pub cpu_s: Option<f64>,
    /// Largest resident size.
    pub peak_rss_bytes: Option<f64>,
}

/// The winner and the base, line by line (CA-83).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileReport {
    /// What was run: a bench or test command by name, or `profile` for a command of its own.
    pub command: String,
    /// The base, then the winner.
    pub sides: Vec<SideProfile>,
}

/// What a profile says of one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideProfile {
    /// `base`, or the winner's id.
    pub side: String,
    /// Why there is less than was hoped for.
    pub note: Option<String>,
    /// Functions that the winner changes, in the order of their files.
    pub functions: Vec<FunctionProfile>,
    /// What a command of its own wrote.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

/// A function, line by line. Times include what it calls, and what tracing costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionProfile {
    /// Its file, seen from the root of the tree.
    pub file: String,
    /// Its name, with those of classes and functions around it.
    pub name: String,
    /// How often it was called.
    pub calls: u64,
    /// Seconds spent in it.
    pub total_s: f64,
    /// Its lines.
    pub lines: Vec<LineProfile>,
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LineProfile {
    /// Its number in the file.
    pub line: u32,
    /// How often it was run.
    pub hits: u64,
    /// Seconds spent in it.
    pub total_s: f64,
    /// Its text.
    pub text: String,
}

/// What an evaluation took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Freezing the base.
    pub snapshot_s: f64,
    /// Its tests.
    pub baseline_s: f64,
    /// Candidates' tests.
    pub correctness_s: f64,
    /// Races.
    pub measurement_s: f64,
    /// Waiting for other evaluations on this machine, in all phases.
    pub lock_wait_s: f64,
    /// Processes of tests, builds and benches.
    pub processes: u64,
}

impl EvaluationReport {
    /// The evaluation of the winner.
    #[must_use]
    pub fn winner(&self) -> Option<&Evaluation> {
        let id = self.winner.as_ref()?;
        self.evaluations
            .iter()
            .find(|one| one.id.as_ref() == Some(id))
    }

    /// Whether any candidate gave what the base gave.
    #[must_use]
    pub fn any_correct(&self) -> bool {
        self.evaluations.iter().any(Evaluation::is_correct)
    }

    /// If nothing was learnt of any candidate, for the engine, the machine or a judge failed each time (CA-3): why, the
    /// first time.
    #[must_use]
    pub fn only_infra(&self) -> Option<&str> {
        let mut failures = self
            .evaluations
            .iter()
            .filter_map(|one| one.failure.as_ref());
        let first = failures.clone().next()?;
        let is_all = failures.all(|failure| failure.kind == FailureKind::Infra);
        (is_all && !self.any_correct()).then_some(&first.message)
    }
}

impl Tiebreak {
    pub(crate) fn by_callgrind(count: InstructionCount, used: bool) -> Self {
        Self {
            by: "callgrind".to_owned(),
            used,
            count,
        }
    }
}

impl InstructionCount {
    /// There is none, for this reason.
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self {
            instructions: BTreeMap::new(),
            failed: Some(why.into()),
        }
    }

    /// One number for all bench commands, which count by their weight as times do.
    pub(crate) fn mean(&self, benches: &[Bench]) -> Option<f64> {
        if self.failed.is_some() || benches.is_empty() {
            return None;
        }
        let (mut sum, mut weights) = (0.0, 0.0);
        for bench in benches {
            let count = *self.instructions.get(&bench.name)?;
            sum += bench.weight * (count as f64).ln();
            weights += bench.weight;
        }
        Some((sum / weights).exp())
    }
}

impl Evaluation {
    /// Whether its tests gave what the base's gave.
    #[must_use]
    pub fn is_correct(&self) -> bool {
        self.cases.is_some() && matches!(self.state, State::Correct | State::Racing | State::Done)
    }
}

#[cfg(test)]
mod tests;
