//! One run of a plan: its id and its seeds.

use std::fmt::{self, Write};

use super::Plan;
use super::walk::{Chosen, Step};
use crate::canonical::{ShortHash, canonical_json, hash64, write_text};
use crate::design::{Condition, ConditionId};
use crate::study::SeedPolicy;
use crate::value::Value;

/// `run-` and twelve hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(ShortHash);

impl RunId {
    pub(crate) const DIGITS: u32 = 12;

    /// The digits as a number of 48 bits.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run-{}", self.0)
    }
}

/// One run.
#[derive(Clone)]
pub struct RunSpec<'p> {
    /// Its id.
    pub run_id: RunId,
    /// Its condition.
    pub condition: Condition<'p>,
    /// Which repeat it is, from 1.
    pub replicate: u32,
    /// What its worker seeds generators with.
    pub seed: u32,
    /// The unreduced hash, distinct also in large plans.
    pub seed64: u64,
    /// Its place in the plan.
    pub index: usize,
    agent: Chosen<'p>,
    problem: Chosen<'p>,
    plan: &'p Plan<'p>,
}

impl RunSpec<'_> {
    /// Its place in the run order.
    #[must_use]
    pub fn order(&self) -> u32 {
        self.plan.order()[self.index]
    }

    /// Its agent; null when standalone.
    #[must_use]
    pub fn agent_id(&self) -> &Value {
        &self.agent.actor().id
    }

    /// Its problem; null when standalone.
    #[must_use]
    pub fn problem_id(&self) -> &Value {
        &self.problem.actor().id
    }

    /// Canonical JSON of agent and problem.
    pub(crate) fn actors_json(&self) -> (&str, &str) {
        (&self.agent.actor().json, &self.problem.actor().json)
    }

    pub(super) fn write_digest_line(&self, line: &mut String) {
        let written = write!(line, "{} {}", self.run_id, self.seed);
        written.expect("a string takes all that is written to it");
    }

    /// For messages: what makes it this run.
    pub(super) fn describe(&self) -> String {
        let (agent, problem) = self.actors_json();
        let (condition, replicate) = (self.condition.id(), self.replicate);
        let assignment = self.condition.fingerprint();
        format!(
            "run {} ({condition} {assignment}, replicate {replicate}, agent {agent}, problem {problem})",
            self.index
        )
    }
}

impl SeedPolicy {
    /// The unreduced seed of a run; `salt` is `agent:problem`.
    #[must_use]
    pub fn seed64(&self, study_id: &str, condition_id: &str, replicate: u32, salt: &str) -> u64 {
        SeedText::new(self, study_id).hash(condition_id, replicate, salt)
    }

    /// A run's seed: the hash modulo 2^31 - 1.
    #[must_use]
    pub fn seed(&self, study_id: &str, condition_id: &str, replicate: u32, salt: &str) -> u32 {
        reduced(self.seed64(study_id, condition_id, replicate, salt))
    }

    /// The seed that everything random begins with; null where there is none.
    pub(crate) fn base(&self) -> Value {
        match &self.base_seed {
            Some(seed) => Value::Int(seed.clone()),
            None => Value::Null,
        }
    }
}

fn reduced(seed64: u64) -> u32 {
    (seed64 % 2_147_483_647) as u32
}

struct SeedText {
    head: String,
    middle: String,
    tail: String,
    text: String,
}

impl SeedText {
    fn new(policy: &SeedPolicy, study_id: &str) -> Self {
        let quoted = |text: &str| {
            let mut out = String::new();
            write_text(text, &mut out);
            out
        };
        let base = canonical_json(&policy.base());
        let offset = canonical_json(&policy.per_run_offset);
        let (strategy, id) = (quoted(&policy.strategy), quoted(study_id));
        Self {
            head: format!("{{\"base_seed\":{base},\"condition_id\":"),
            middle: format!(",\"per_run_offset\":{offset},\"replicate\":"),
            tail: format!(",\"strategy\":{strategy},\"study_id\":{id}}}"),
            text: String::new(),
        }
    }

    fn hash(&mut self, condition: &str, replicate: u32, salt: &str) -> u64 {
        let text = &mut self.text;
        text.clear();
        *text += &self.head;
        write_text(condition, text);
        *text += &self.middle;
        push_number(replicate, text);
        *text += ",\"salt\":";
        write_text(salt, text);
        *text += &self.tail;
        hash64(text)
    }
}

/// A number in decimal; without the machinery of formats, since a plan has millions of runs.
fn push_number(number: u32, text: &mut String) {
    if number >= 10 {
        push_number(number / 10, text);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

/// Makes runs of steps; what runs have in common is written once.
pub(super) struct Hasher<'p> {
    plan: &'p Plan<'p>,
    seeds: SeedText,
    study_json: String,
    /// The last condition's id and its text.
    condition: Option<(ConditionId, String)>,
    text: String,
    salt: String,
}

impl<'p> Hasher<'p> {
    pub(super) fn new(plan: &'p Plan<'p>) -> Self {
        let mut study_json = String::new();
        write_text(&plan.study.study_id, &mut study_json);
        Self {
            seeds: SeedText::new(&plan.study.seeds, &plan.study.study_id),
            study_json,
            plan,
            condition: None,
            text: String::new(),
            salt: String::new(),
        }
    }

    pub(super) fn run(&mut self, step: &Step<'p>, index: usize) -> RunSpec<'p> {
        let id = step.condition.id();
        if self
            .condition
            .as_ref()
            .is_none_or(|(known, _)| *known != id)
        {
            self.condition = Some((id, id.to_string()));
        }
        let condition = self
            .condition
            .as_ref()
            .map_or("", |(_, text)| text.as_str());
        let (agent, problem) = (step.agent.actor(), step.problem.actor());
        let (text, study) = (&mut self.text, &self.study_json);
        text.clear();
        text.extend([
            "{\"agent_id\":",
            &agent.json,
            ",\"condition_id\":\"",
            condition,
        ]);
        text.extend(["\",\"problem_id\":", &problem.json, ",\"replicate\":"]);
        push_number(step.replicate, text);
        text.extend([",\"study_id\":", study, "}"]);
        let hash = ShortHash::of(text).0 >> (4 * (RunId::DIGITS - self.plan.id_digits));
        self.salt.clear();
        self.salt
            .extend([agent.text.as_str(), ":", problem.text.as_str()]);
        let seed64 = self.seeds.hash(condition, step.replicate, &self.salt);
        RunSpec {
            run_id: RunId(ShortHash(hash)),
            condition: step.condition,
            replicate: step.replicate,
            seed: reduced(seed64),
            seed64,
            index,
            agent: step.agent.clone(),
            problem: step.problem.clone(),
            plan: self.plan,
        }
    }
}
