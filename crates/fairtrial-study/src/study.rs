//! A study as it was read and found valid: what the planner, the journal, the runner and the report need of the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use num_bigint::BigInt;

use crate::binding::{Binding, Packet};
use crate::compat::Compat;
use crate::design::DesignSpec;
use crate::expression::Expression;
use crate::fault::{Fault, Place};
use crate::format::Format;
use crate::node::Entry;
use crate::value::Value;

/// A valid study.
#[derive(Clone, Debug)]
pub struct Study {
    /// Whose rules hold.
    pub compat: Compat,
    /// The file, as the user named it.
    pub file: Arc<str>,
    /// Where the file is: what its paths are relative to.
    pub directory: PathBuf,
    /// The study's id.
    pub study_id: String,
    /// Factors, in declaration order.
    pub factors: Vec<Factor>,
    /// Blocks, in declaration order.
    pub blocks: Vec<Block>,
    /// Constraints, in declaration order.
    pub constraints: Vec<Constraint>,
    /// How conditions are made of factors.
    pub design: DesignSpec,
    /// How many runs, and at what width.
    pub budget: RunBudget,
    /// Where seeds come from.
    pub seeds: SeedPolicy,
    /// Agents by id, in order; ids that are not text are kept as they were given.
    pub agents: Vec<Value>,
    /// Problems by id, as agents.
    pub problems: Vec<Value>,
    /// What ids stand for, where the file says it.
    pub bindings: Bindings,
    /// In which order runs are to start.
    pub order: OrderSpec,
    /// When to give up.
    pub on_failure: FailurePolicy,
    /// How a plan larger than `max_runs` is cut.
    pub sample: Option<Sample>,
    /// Further formats to export at the end.
    pub export: Vec<(Format, Place)>,
    /// Where results go, relative to the current directory.
    pub output_dir: PathBuf,
    /// The whole file in full: all keys of SF-7, then those of ST-1 that were given.
    pub normalised: Value,
    /// What is odd, but no error.
    pub warnings: Vec<Fault>,
}

impl Study {
    /// The file in full as it is exported: under `dre-0.2` DRE's 21 keys and no others.
    #[must_use]
    pub fn exported(&self) -> Value {
        match (&self.normalised, self.compat) {
            (Value::Map(entries), Compat::Dre) => {
                let last = entries
                    .iter()
                    .position(|(key, _)| key.as_text() == Some("compat"));
                Value::Map(entries[..last.unwrap_or(entries.len())].to_vec())
            }
            (value, _) => value.clone(),
        }
    }

    /// A path of the file, resolved.
    #[must_use]
    pub fn resolve(&self, path: &str) -> PathBuf {
        self.directory.join(Path::new(path))
    }

    /// Whether conditions run by themselves, without agents and problems.
    #[must_use]
    pub fn is_standalone(&self) -> bool {
        let named = |names: &[&str]| {
            let mut factors = self.factors.iter();
            factors.any(|factor| names.contains(&factor.name.as_str()))
        };
        let has_agents = self.compat == Compat::Native && self.bindings.agents.is_some();
        let has_problems = !self.problems.is_empty() || named(&PROBLEM_FACTORS);
        self.bindings.runner.is_some() || !(has_problems || has_agents)
    }

    /// The seed that everything random in the plan begins with; null where the file says so.
    #[must_use]
    pub fn base_seed(&self) -> Value {
        self.seeds.base()
    }
}

/// Factors that choose the agent, the first of them that there is.
pub(crate) const AGENT_FACTORS: [&str; 3] = ["agent_id", "agent", "agent_spec"];
/// Factors that choose the problem, the first of them that there is.
pub(crate) const PROBLEM_FACTORS: [&str; 2] = ["problem_id", "problem"];

/// A factor and its levels.
#[derive(Clone, Debug)]
pub struct Factor {
    /// Where it is declared.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// Its levels; without any, `default` is the one value.
    pub levels: Vec<Level>,
    /// The one value of a factor without levels.
    pub default: Value,
}

impl Factor {
    /// The values it takes.
    #[must_use]
    pub fn values(&self) -> Vec<Value> {
        if self.levels.is_empty() {
            return vec![self.default.clone()];
        }
        self.levels
            .iter()
            .map(|level| level.value.clone())
            .collect()
    }
}

/// One level of a factor.
#[derive(Clone, Debug)]
pub struct Level {
    /// Where it is declared.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// How it is shown.
    pub label: String,
    /// What else is known of it.
    pub metadata: Value,
}

/// A block and its levels.
#[derive(Clone, Debug)]
pub struct Block {
    /// Where it is declared.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// Its levels.
    pub levels: Vec<Value>,
}

/// A rule that conditions keep or violate.
#[derive(Clone, Debug)]
pub struct Constraint {
    /// Where it is declared; where its expression is, if it has one.
    pub place: Place,
    /// Its id.
    pub id: String,
    /// What it means.
    pub description: String,
    /// The rule as an expression.
    pub expression: Option<Expression>,
    /// The rule as `module:attribute`.
    pub callable_ref: Option<String>,
    /// Whether a condition that violates it runs nonetheless.
    pub is_warning: bool,
}

/// How many runs, and at what width.
#[derive(Clone, Debug)]
pub struct RunBudget {
    /// Runs of each condition, agent and problem.
    pub replicates: u32,
    /// Runs at most.
    pub max_runs: Option<u64>,
    /// Where `max_runs` stands.
    pub place: Place,
    /// Runs at a time, where the file says it.
    pub parallelism: Option<u64>,
    /// Whether the first failure ends the study.
    pub fail_fast: bool,
}

/// Where seeds come from.
#[derive(Clone, Debug)]
pub struct SeedPolicy {
    /// None is a seed nobody can repeat.
    pub base_seed: Option<BigInt>,
    /// Enters the hash.
    pub strategy: String,
    /// Enters the hash.
    pub per_run_offset: Value,
}

/// What the ids of a study stand for, where the file says it.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// Agents; none where the host program binds them.
    pub agents: Option<Vec<(String, Binding)>>,
    /// Problems; none where the host program binds them.
    pub problems: Option<Vec<(String, Packet)>>,
    /// Evaluates the runs of packets that have no evaluator.
    pub evaluator: Option<Binding>,
    /// Runs standalone conditions.
    pub runner: Option<Binding>,
    /// What every binding starts from, as written.
    pub(crate) defaults: Vec<Entry>,
}

/// In which order runs are to start.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderSpec {
    /// By which rule.
    pub policy: OrderPolicy,
    /// What its shuffles begin with.
    pub seed: Value,
}

/// By which rule runs are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderPolicy {
    /// As planned.
    Plan,
    /// All in one shuffle.
    Shuffled,
    /// The first replicate of everything, shuffled, then the second.
    Interleaved,
    /// Block by block, each shuffled.
    WithinBlock,
}

impl OrderPolicy {
    pub(crate) const NAMES: [&'static str; 4] = ["plan", "shuffled", "interleaved", "within_block"];

    /// As users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::Plan,
            Self::Shuffled,
            Self::Interleaved,
            Self::WithinBlock,
        ];
        all.into_iter().find(|policy| policy.name() == name)
    }
}

/// How a plan larger than `max_runs` is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// As many runs of each condition, but for one.
    Balanced,
    /// The first runs of the plan.
    First,
}

/// When to give up.
#[derive(Clone, Debug, PartialEq)]
pub struct FailurePolicy {
    /// What counts as too much.
    pub trigger: FailureTrigger,
    /// How long running runs have between TERM and KILL.
    pub grace: Duration,
    /// Whether running runs may finish instead.
    pub drain: bool,
}

/// What counts as too much failure.
#[derive(Clone, Debug, PartialEq)]
pub enum FailureTrigger {
    /// Nothing.
    Never,
    /// So many failures.
    After(u64),
    /// More than this fraction of at least so many runs.
    Above {
        /// Between 0 and 1.
        fraction: f64,
        /// Runs before it counts.
        min_runs: u64,
    },
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self {
            trigger: FailureTrigger::Never,
            grace: Duration::from_secs(5),
            drain: false,
        }
    }
}
